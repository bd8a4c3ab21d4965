"""The protocol revisions this library speaks, in the order they were published.

A revision is named by its date. The specification defines no order on the names beyond equality
(2026-07-28 basic/versioning), so "at least" means the position in :data:`REVISIONS`, and an unknown name is
never at least anything.
"""

import enum
from typing import Final

__all__ = [
    "LATEST",
    "LATEST_LEGACY",
    "LATEST_MODERN",
    "LEGACY_REVISIONS",
    "MODERN_REVISIONS",
    "REVISIONS",
    "Era",
    "at_least",
    "era_of",
]

LEGACY_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_REVISIONS: Final = ("2026-07-28",)
REVISIONS: Final = LEGACY_REVISIONS + MODERN_REVISIONS

LATEST_LEGACY: Final = LEGACY_REVISIONS[-1]
LATEST_MODERN: Final = MODERN_REVISIONS[-1]
LATEST: Final = REVISIONS[-1]

_POSITION: Final = {revision: position for position, revision in enumerate(REVISIONS)}


class Era(enum.Enum):
    """How two peers come to know each other's revision, identity and capabilities."""

    LEGACY = "legacy"
    """One ``initialize`` handshake opens a session that both peers remember."""

    MODERN = "modern"
    """No handshake: every request carries what the server needs to know in ``_meta``."""


_ERA: Final = dict.fromkeys(LEGACY_REVISIONS, Era.LEGACY) | dict.fromkeys(MODERN_REVISIONS, Era.MODERN)


def era_of(revision: str) -> Era:
    """Return the era a revision belongs to.

    Raises:
        ValueError: The revision is not one of :data:`REVISIONS`.
    """
    try:
        return _ERA[revision]
    except KeyError:
        raise ValueError(f"unknown protocol revision {revision!r}; known: {', '.join(REVISIONS)}") from None


def at_least(revision: str, minimum: str) -> bool:
    """Tell whether ``revision`` was published with or after ``minimum``; False if either is unknown."""
    here = _POSITION.get(revision)
    there = _POSITION.get(minimum)
    return here is not None and there is not None and here >= there
