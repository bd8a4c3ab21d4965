"""The order of revisions, and the era of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.types.versions import (
    LATEST,
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_REVISIONS,
    MODERN_REVISIONS,
    REVISIONS,
    Era,
    at_least,
    era_of,
)

revisions = st.sampled_from(REVISIONS)


def test_the_published_revisions_from_oldest_to_newest() -> None:
    assert REVISIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
    assert (LATEST_LEGACY, LATEST_MODERN, LATEST) == ("2025-11-25", "2026-07-28", "2026-07-28")


def test_every_revision_is_of_one_era() -> None:
    assert LEGACY_REVISIONS + MODERN_REVISIONS == REVISIONS
    assert [era_of(revision) for revision in REVISIONS] == [Era.LEGACY] * 4 + [Era.MODERN]


@given(revisions, revisions)
def test_at_least_is_the_order_of_publication(one: str, other: str) -> None:
    assert at_least(one, other) is (REVISIONS.index(one) >= REVISIONS.index(other))


@pytest.mark.parametrize("unknown", ["", "2025-06-19", "9999-12-31", "DRAFT-2026-v1", "2026-07-28 "])
def test_an_unknown_revision_is_never_at_least_anything(unknown: str) -> None:
    """Revisions compare as strings all too easily: 9999-12-31 must not count as a newer one that has everything."""
    assert not any(at_least(unknown, revision) or at_least(revision, unknown) for revision in REVISIONS)
    assert not at_least(unknown, unknown)
    with pytest.raises(ValueError, match="unknown protocol revision"):
        era_of(unknown)
