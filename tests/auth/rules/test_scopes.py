"""Scopes: which ones are asked for, and when a client gives up asking for more."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trio_mcp.auth.rules.scopes import MAX_STEP_UPS, StepUps, join_scopes, read_scopes, select_scopes

SCOPES = st.frozensets(st.text("abc:", min_size=1, max_size=3), max_size=4)


def split(text: str | None) -> frozenset[str] | None:
    """Return scopes; None stays None."""
    return None if text is None else frozenset(text.split())


@pytest.mark.parametrize(
    ("given", "challenged", "listed", "offered", "expected"),
    [
        (None, None, None, None, ""),
        (None, "a b", "c", None, "a b"),
        (None, None, "c d", None, "c d"),
        (None, "", "c", None, ""),
        (None, None, "", None, ""),
        ("u", None, "c", None, "u"),
        ("u", "a", "c", None, "u a"),
        ("", None, "c", None, ""),
        # Neither set has to be within the other, nor within what the authorization server lists.
        (None, "a z", "a b", "b", "a z"),
        (None, "a", None, "offline_access", "a offline_access"),
        (None, None, None, "offline_access x", "offline_access"),
        (None, "a offline_access", None, "a", "a"),
        (None, None, "a offline_access", None, "a"),
        ("offline_access", None, None, "a", "offline_access"),
    ],
)
def test_selection(
    given: str | None, challenged: str | None, listed: str | None, offered: str | None, expected: str
) -> None:
    """The challenge, else what the resource lists, else nothing; ``offline_access`` only where it is offered."""
    chosen = select_scopes(split(given), challenged=split(challenged), listed=split(listed), offered=split(offered))
    assert chosen == split(expected)


def test_no_refresh_token_is_asked_for_where_none_is_wanted() -> None:
    """A machine has no use for one."""
    offered = frozenset({"offline_access"})
    assert select_scopes(None, challenged=None, listed=None, offered=offered, offline=False) == frozenset()


@given(SCOPES)
def test_scopes_survive(scopes: frozenset[str]) -> None:
    """In any order, to and from the parameter."""
    assert read_scopes(join_scopes(scopes)) == scopes
    assert join_scopes(sorted(scopes, reverse=True)) == join_scopes(scopes)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """What is read can be sent again."""
    assert read_scopes(join_scopes(read_scopes(text))) == read_scopes(text)


@given(st.lists(st.one_of(st.none(), SCOPES), max_size=8), SCOPES)
def test_a_server_that_is_never_content(challenges: list[frozenset[str] | None], held: frozenset[str]) -> None:
    """It is asked at most twice, each time for all that was asked for so far and more, never twice for the same."""
    ups = StepUps()
    asked: list[frozenset[str]] = []
    for challenged in challenges:
        union = ups.more(challenged, held)
        if union is not None:
            assert challenged
            assert union >= challenged | held | frozenset().union(*asked)
            asked.append(union)
            ups.took(union)
    assert len(asked) == len(set(asked)) <= MAX_STEP_UPS


def test_the_same_challenge_again() -> None:
    """It is worth one login, even if an operation before asked for the same: a person may have declined some of it."""
    ups, both = StepUps(), frozenset({"a", "b"})
    assert ups.more(frozenset({"b"}), both) == both
    ups.took(both)
    assert ups.more(frozenset({"b"}), both) is None
    assert ups.more(frozenset({"c"}), both) == both | {"c"}
    ups.took(both | {"c"})
    assert ups.more(frozenset({"d"}), both) is None


@pytest.mark.parametrize("challenged", [None, frozenset()])
def test_a_challenge_without_scopes(challenged: frozenset[str] | None) -> None:
    """There is nothing more to ask for."""
    assert StepUps().more(challenged, {"a"}) is None
