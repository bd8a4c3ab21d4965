"""Checks of numbers that an application sets. A boolean is refused, although it is an `int` to Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

__all__ = ["check_count", "check_seconds", "validator"]


def check_seconds(name: str, value: Any, *, zero: bool = False, finite: bool = False, optional: bool = False) -> None:
    """Check a length of time.

    Args:
        name: The name of the setting, for the error message.
        value: The value given.
        zero: Whether 0 is allowed.
        finite: Whether infinity is refused.
        optional: Whether None is allowed.

    Raises:
        TypeError: If the value is not a number.
        ValueError: If it is out of range.
    """
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds{' or None' if optional else ''}, got {value!r}")
    # Written as "not (valid)": every comparison with NaN is false, so NaN is refused as well.
    if not (value >= 0 if zero else value > 0) or (finite and value == math.inf):
        least, most = "at least" if zero else "more than", " and finite" if finite else ""
        raise ValueError(f"{name} must be {least} 0 seconds{most}, got {value!r}")


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Check a count.

    Args:
        name: The name of the setting, for the error message.
        value: The value given.
        least: The smallest value allowed.

    Raises:
        TypeError: If the value is not an integer.
        ValueError: If it is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")


def validator(check: Callable[..., None], **options: Any) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """Turn a check into an attrs validator: ``attrs.field(validator=validator(check_seconds, zero=True))``."""
    return lambda instance, attribute, value: check(attribute.name, value, **options)
