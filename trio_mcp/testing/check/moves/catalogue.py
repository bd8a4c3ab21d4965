"""All moves."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Final

from trio_mcp.testing.check import moves as room
from trio_mcp.testing.check.moves.model import Move

__all__ = ["MOVES"]


def _collected() -> dict[str, Move]:
    found: dict[str, Move] = {}
    for each in sorted(pkgutil.iter_modules(room.__path__, f"{room.__name__}."), key=lambda each: each.name):
        # This module, whose import has only begun, is among them, and has no moves.
        found |= {move.name: move for move in vars(import_module(each.name)).values() if isinstance(move, Move)}
    return found


MOVES: Final = _collected()
"""Every move, by its name."""
