"""Hypothesis strategies for messages of the protocol, for arguments of tools, and for what is wrong with either.

Needs the extra ``trio-mcp[testing]``.
"""

from __future__ import annotations

from trio_mcp.testing.strategies.drawing import draws
from trio_mcp.testing.strategies.near_valid import NearValid, near_valid
from trio_mcp.testing.strategies.schemas import CannotGenerate, from_schema, simplest

__all__ = [
    "CannotGenerate",
    "NearValid",
    "draws",
    "from_schema",
    "near_valid",
    "simplest",
]
