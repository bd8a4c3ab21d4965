"""Checks of the numbers that an application sets. A boolean is none, although Python takes it for one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

__all__ = ["check_count", "check_seconds", "validator"]


def check_seconds(name: str, value: Any, *, zero: bool = False, finite: bool = False, optional: bool = False) -> None:
    """Check a length of time.

    Args:
        name: What it is called, for the error message.
        value: What was given.
        zero: It may be 0.
        finite: It must not be infinite.
        optional: None is a value, too.

    Raises:
        TypeError: It is no number.
        ValueError: It is out of range.
    """
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds{' or None' if optional else ''}, got {value!r}")
    # The comparisons are false for NaN.
    if not (value >= 0 if zero else value > 0) or (finite and value == math.inf):
        least, most = "at least" if zero else "more than", " and finite" if finite else ""
        raise ValueError(f"{name} must be {least} 0 seconds{most}, got {value!r}")


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Check a number of things.

    Args:
        name: What it is called, for the error message.
        value: What was given.
        least: The smallest number that makes sense.

    Raises:
        TypeError: It is no integer.
        ValueError: It is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")


def validator(check: Callable[..., None], **options: Any) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """Make a check into one of an attrs field: ``attrs.field(validator=validator(check_seconds, zero=True))``."""
    return lambda instance, attribute, value: check(attribute.name, value, **options)
