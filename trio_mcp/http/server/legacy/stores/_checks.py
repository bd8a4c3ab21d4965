"""What the limits of every store have to be."""

from __future__ import annotations

__all__ = ["check_limit"]


def check_limit(name: str, value: object, *, whole: bool) -> None:
    """Refuse a limit that is no number above 0.

    Raises:
        TypeError, ValueError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise TypeError(f"{name} must be {'an integer' if whole else 'a number'}, got {value!r}")
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value!r}")
