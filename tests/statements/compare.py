"""What differs between the statements that we list and those of a checkout of the specification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest

import attrs

from tests.statements.extract import Found
from trio_mcp.conformance.statements.model import Statement

Key = tuple[str, str, str]
Listed = tuple[Statement, str]


@attrs.frozen
class Difference:
    """Statements of a section that are only here, or only there.

    Attributes:
        where: Revision, section and keyword.
        found: The statement in the checkout; None if it is gone.
        listed: The statement here, and its hash; None if it is new.
    """

    where: Key
    found: Found | None
    listed: Listed | None

    @property
    def kind(self) -> str:
        """Whether it is new, changed or gone."""
        return "gone" if self.found is None else "new" if self.listed is None else "changed"

    def __str__(self) -> str:
        lines = [f"{self.kind}: {' '.join(self.where)}"]
        if self.listed is not None:
            lines.append(f"  {self.listed[1]} listed as: {self.listed[0].text}")
        if self.found is not None:
            lines.append(f"  {self.found.hash} {self.found.sentence}")
        return "\n".join(lines)


def differences(found: Iterable[Found], listed: Iterable[Statement]) -> list[Difference]:
    """Return what is new, changed (a section lost one statement and gained another) or gone."""
    ours: dict[Key, list[Listed]] = {}
    for statement in listed:
        for place in statement.places:
            ours.setdefault((place.revision, place.section, statement.keyword), []).append((statement, place.hash))
    theirs: dict[Key, list[Found]] = {}
    for each in found:
        theirs.setdefault((each.revision, each.section, each.keyword), []).append(each)
    return [
        Difference(where, new, old)
        for where in sorted({*ours, *theirs})
        for new, old in zip_longest(*_unmatched(theirs.get(where, []), ours.get(where, [])))
    ]


def _unmatched(found: list[Found], listed: list[Listed]) -> tuple[list[Found], list[Listed]]:
    both = Counter(each.hash for each in found) & Counter(hashed for _, hashed in listed)
    theirs, ours = both.copy(), both.copy()
    return (
        [each for each in found if not _take(theirs, each.hash)],
        [each for each in listed if not _take(ours, each[1])],
    )


def _take(counted: Counter[str], hashed: str) -> bool:
    counted[hashed] -= 1
    return counted[hashed] >= 0
