"""The protocol revisions that this library supports, in the order of their publication.

A revision is named by its date, but the specification defines no order on the names (2026-07-28 basic/versioning). So
the order is that of :data:`REVISIONS`, which does not contain unknown names.
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

# The oldest revision comes first. Everything else in the package that depends on the order of revisions derives it from
# these tuples.
LEGACY_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_REVISIONS: Final = ("2026-07-28",)
REVISIONS: Final = LEGACY_REVISIONS + MODERN_REVISIONS

LATEST_LEGACY: Final = LEGACY_REVISIONS[-1]
LATEST_MODERN: Final = MODERN_REVISIONS[-1]
LATEST: Final = REVISIONS[-1]

_POSITION: Final = {revision: position for position, revision in enumerate(REVISIONS)}


class Era(enum.Enum):
    """The revisions in which two peers learn each other's revision, identity and capabilities in the same way."""

    LEGACY = "legacy"
    """An ``initialize`` handshake opens a session, in which both peers remember what was declared."""

    MODERN = "modern"
    """There is no handshake: every request declares what the server needs to know, in ``_meta``."""


_ERA: Final = dict.fromkeys(LEGACY_REVISIONS, Era.LEGACY) | dict.fromkeys(MODERN_REVISIONS, Era.MODERN)


def era_of(revision: str) -> Era:
    """Return the era to which a revision belongs.

    Raises:
        ValueError: If the revision is not one of :data:`REVISIONS`.
    """
    try:
        return _ERA[revision]
    except KeyError:
        raise ValueError(
            f"unknown protocol revision {revision!r}; known revisions are {', '.join(REVISIONS)}"
        ) from None


def at_least(revision: str, minimum: str) -> bool:
    """Return whether ``revision`` is ``minimum`` or a later one; False if either is unknown."""
    # The names themselves are not compared, because an unknown one, such as "draft", must not count as later than all
    # others.
    here = _POSITION.get(revision)
    there = _POSITION.get(minimum)
    return here is not None and there is not None and here >= there
