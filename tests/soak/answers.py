"""What the served tools answer: functions of the arguments alone, which the caller computes as well."""

from __future__ import annotations

import hashlib

COLOURS = ("red", "green", "blue", "white")
WORDS = tuple(f"{letter}{number}" for letter in "abc" for number in range(5))


def digest(call: str, number: int) -> str:
    """Give the answer to a call of this id with this argument."""
    return hashlib.sha256(f"{call}:{number}".encode()).hexdigest()


def worked(call: str, number: int, pad: int) -> str:
    """Give the answer of the tool ``work``, with so many characters more."""
    told = digest(call, number)
    return told + (told * (pad // len(told) + 1))[:pad]


def colour_of(call: str) -> str:
    """Tell what the user says when asked in this call."""
    return COLOURS[int(digest(call, 0)[:4], 16) % len(COLOURS)]
