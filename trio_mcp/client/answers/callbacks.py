"""Calling what the application has given us."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["call_back"]


async def call_back(callback: Callable[..., Any], *arguments: object) -> Any:
    """Call a sync or async callback, and give what it gives."""
    outcome = callback(*arguments)
    return await outcome if isinstance(outcome, Awaitable) else outcome
