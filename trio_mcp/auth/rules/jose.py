"""joserfc, which signs and verifies: an extra, and loaded only when something has to be signed or verified."""

from __future__ import annotations

import importlib.util

__all__ = ["has_jose", "need_jose"]


def has_jose() -> bool:
    """Return whether joserfc is installed, without loading it."""
    return importlib.util.find_spec("joserfc") is not None


def need_jose(what: str) -> None:
    """Make sure that joserfc is installed.

    Args:
        what: What needs it, to begin the error message.

    Raises:
        ImportError: If it is not; the message names the extra.
    """
    if not has_jose():
        raise ImportError(f"{what} needs joserfc: pip install 'trio-mcp[auth]'", name="joserfc")
