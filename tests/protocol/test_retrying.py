"""Retrying: what a server asks for, and how long to wait otherwise."""

from __future__ import annotations

import random
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.tables import by_outcome, listed
from trio_mcp.retrying import Backoff, may_repeat, retry_after

NOW = 1_800_000_000.0


@by_outcome(
    "value",
    "seconds",
    {
        None: [*listed(" | -1 | 1.5 | soon | ٣ | Fri, 99 Foo 2027 99:99:99 GMT"), None],
        0: ["0", formatdate(NOW - 30, usegmt=True)],
        120: "120",
        float("inf"): ["9" * 400],
        30: [formatdate(NOW + 30, usegmt=True)],
        1_800_432_030 - NOW: "Wednesday, 20-Jan-27 08:00:30 GMT",
    },
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    """RFC 9110, section 10.2.3: seconds or a date; what can't be read is as if it were not there."""
    assert retry_after(value, NOW) == seconds


@given(st.text(max_size=40))
def test_any_retry_after_is_read_or_ignored(value: str) -> None:
    """It comes from a peer: nothing raises, and nothing goes back in time."""
    seconds = retry_after(value, NOW)
    assert seconds is None or seconds >= 0


backoffs = st.builds(
    Backoff,
    first=st.floats(0.01, 5),
    longest=st.floats(5, 100),
    attempts=st.integers(0, 10_000),
    patience=st.floats(0, 1000),
)


@given(backoffs, st.integers(0, 10_000), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 2000))
def test_a_wait_is_bounded(backoff: Backoff, attempt: int, chance: float, asked: float | None) -> None:
    """By `longest`, or by what the server asks; and it ends after `attempts`, or where too much is asked."""
    wait = backoff.wait(attempt, lambda: chance, asked)
    if attempt >= (backoff.attempts or 0) or (asked is not None and asked > backoff.patience):
        assert wait is None
    elif asked is not None and attempt == 0:
        assert wait == asked
    else:
        assert wait is not None
        assert (asked or 0) <= wait <= max(backoff.longest, asked or 0)


def test_waits_grow_by_their_factor_and_differ_by_their_jitter() -> None:
    """The wait is bounded after any number of attempts, and without a limit of attempts it never ends."""
    assert [Backoff(first=1, longest=10).wait(attempt, lambda: 0.0) for attempt in range(6)] == [0.5, 1, 2, 4, 5, None]
    assert Backoff(patience=5).wait(0, random.random, 5.0) == 5  # which a server may just ask for
    backoff = Backoff(first=2, factor=2, longest=60, jitter=0.25, attempts=None)
    for attempt, longest in ((0, 2), (1, 4), (2, 8), (5, 60), (10**9, 60)):
        waits = [backoff.wait(attempt, random.random) or 0 for _ in range(100)]
        assert all(longest * 0.75 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 50


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        *(({"first": value, "longest": 1}, ValueError) for value in (0, 2)),
        *(({name: value}, ValueError) for name, value in (("factor", 0.5), ("jitter", 2), ("patience", -1))),
        ({"longest": float("inf")}, ValueError),
        *(({name: value}, TypeError) for name, value in (("first", "x"), ("factor", True), ("attempts", 1.5))),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(bad: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="a backoff needs" if error is ValueError else next(iter(bad))):
        Backoff(**bad)


@pytest.mark.parametrize(
    ("trouble", "method", "repeat"),
    [
        ("busy", "tools/call", True),
        ("busy", None, True),
        ("gateway", "tools/call", False),
        ("gateway", "tools/list", True),
        ("gateway", "x/own", False),
        ("gateway", None, True),
        ("refused", "tools/list", False),
        ("session_lost", "tools/list", False),
        ("unauthorized", None, False),
    ],
)
def test_what_may_be_repeated(trouble: str, method: str | None, repeat: bool) -> None:
    """A call may have been carried out unless the server says that it was not; reading twice does no harm."""
    assert may_repeat(trouble, method) is repeat  # type: ignore[arg-type]
