"""The names of a group: no two items have the same name, and each name can be split."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from trio_mcp import joined_names
from trio_mcp.joined_names import MAX_NAME, JoinedNames

# Names that are hard to tell apart, beside any text at all.
TRICKY = st.text("ab_-. 0", max_size=12)
HASHED = st.builds("{}_{:016x}".format, TRICKY, st.integers(0, 2**64 - 1))
NAMES = st.one_of(TRICKY, HASHED, st.text(max_size=80), st.text("a_", min_size=50, max_size=70))
PAIRS = st.tuples(NAMES, NAMES)


@given(PAIRS)
@example(("a_", "b"))
@example(("a__b", "c"))
@example(("a", "_b"))
@example(("files", "read_0123456789abcdef"))
@example(("", ""))
@example(("a\n", "b\n"))
@example(("\ud800", "\ud800"))
def test_every_name_can_be_taken_apart_and_fits_every_api(pair: tuple[str, str]) -> None:
    names = JoinedNames()
    joined = names.join(*pair)
    assert names.split(joined) == pair
    assert re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}", joined)
    assert JoinedNames().join(*pair) == joined  # whatever else there is


@given(st.sets(PAIRS, min_size=2, max_size=30))
@example({("a", "b_c"), ("a_b", "c"), ("a__b", "c"), ("a", "b__c"), ("a_", "c"), ("a", "_c")})
def test_no_two_have_the_same_name(pairs: set[tuple[str, str]]) -> None:
    names = JoinedNames()
    joined = {pair: names.join(*pair) for pair in pairs}
    assert len(set(joined.values())) == len(pairs)
    assert {names.split(name) for name in joined.values()} == pairs


@given(NAMES, NAMES)
def test_the_name_of_one_can_not_be_that_of_another_even_if_a_server_tries(server: str, name: str) -> None:
    names = JoinedNames()
    joined = names.join(server, name)
    own = joined.partition("__")[2]
    if (server, name) != ("files", own):
        assert names.join("files", own) != joined


@pytest.mark.parametrize(
    ("server", "name", "joined"),
    [
        ("files", "read_file", "files__read_file"),
        ("files", "read__file", "files__read__file"),
        ("my-files", "_x", "my-files___x"),
        ("files", "get_subscription", "files__get_subscription"),
    ],
)
def test_good_names_stay_readable(server: str, name: str, joined: str) -> None:
    assert JoinedNames().join(server, name) == joined
    assert JoinedNames().split(joined) == (server, name)  # without having been joined there


@pytest.mark.parametrize("pair", [("my files", "read"), ("files", "read.file"), ("files", "x" * 64), ("a__b", "c")])
def test_other_names_keep_a_readable_front(pair: tuple[str, str]) -> None:
    joined = JoinedNames().join(*pair)
    assert re.fullmatch(r"[a-z_]+__[a-z_]+_[0-9a-f]{16}", joined)
    assert JoinedNames().split(joined) is None  # only who has made it knows


@given(st.text(max_size=80))
@example("a__")
@example("__a")
@example("a_____")
def test_what_split_takes_apart_join_puts_together(text: str) -> None:
    pair = JoinedNames().split(text)
    assert pair is None or JoinedNames().join(*pair) == text or len(text) > MAX_NAME


def test_the_memory_for_shortened_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_names, "MAX_REMEMBERED", 3)
    names = JoinedNames()
    joined = [names.join("a", f"tool {number}") for number in range(5)]
    assert [names.split(name) is None for name in joined] == [True, True, False, False, False]
    names.forget("a")
    assert names.split(joined[-1]) is None
