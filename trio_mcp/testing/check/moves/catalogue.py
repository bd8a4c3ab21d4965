"""All moves."""

from __future__ import annotations

from typing import Final

from trio_mcp.testing.check.moves import calls
from trio_mcp.testing.check.moves.model import Move

__all__ = ["MOVES"]

MOVES: Final[dict[str, Move]] = {
    move.name: move for module in (calls,) for move in vars(module).values() if isinstance(move, Move)
}
"""Every move, by name."""
