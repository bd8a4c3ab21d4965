"""Judging in pieces: what is late counts for the example that it belongs to, and what lasts stays in view."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from trio_mcp.conformance.judging import Judging
from trio_mcp.conformance.rules.catalogue import RULES
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Verdict, judged, rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.usage import Usage, grown, grows, is_decided, usage_of


@rule("MUST", "server", "basic#responses", "A request is answered once.")
def once(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests():
        for answer in asked.answers:
            yield judged(answer is asked.answers[0], answer, "again")


@rule("MUST", "server", "server/resources#subscriptions", "Only what was subscribed to is updated.")
def subscribed(history: History) -> Iterator[Verdict]:
    for connection in history:
        uris = {asked.params.get("uri") for asked in connection.requests if asked.method == "resources/subscribe"}
        for event in connection.notifications("server", "notifications/resources/updated"):
            yield judged(event.message["params"]["uri"] in uris, event, "not subscribed")


@rule("MUST", "server", "basic", "This rule has a mistake.")
def mistaken(history: History) -> Iterator[Verdict]:
    yield judged(history.connections[7].modern, history.events[0], "")


def begin(example: int) -> Event:
    return Event("mark", "kit", facts={"what": "begin", "example": example})


def said(sender: Any, exchange: int | None = None, **message: Any) -> Event:
    return Event("message", sender, exchange=exchange, message={"jsonrpc": "2.0", **message})


PROLOGUE = [Event("open", "client", facts={"transport": "stdio"}), said("client", id=0, method="initialize", params={})]
PING, PONG = said("client", id=1, method="ping"), said("server", id=1, result={})
SUBSCRIBE = said("client", id=2, method="resources/subscribe", params={"uri": "a:"})
UPDATED = said("server", method="notifications/resources/updated", params={"uri": "a:"})


def verdicts(judging: Judging, *events: Event) -> list[tuple[str, str | None, tuple[int, ...]]]:
    return [(each.rule.id, each.verdict.problem, each.examples) for each in judging.judge(events)]


def test_what_is_late_counts_for_its_example_and_only_once() -> None:
    judging = Judging([once], PROLOGUE)
    assert verdicts(judging, begin(0), PING, PONG, begin(1)) == [("once", None, (0,))]
    other = said("client", id=3, method="ping")
    assert verdicts(judging, begin(2), other, attrs.evolve(PONG)) == [("once", "again", (0, 2))]
    assert verdicts(judging, begin(3)) == []


def test_what_lasts_stays_in_view() -> None:
    judging = Judging([subscribed], PROLOGUE)
    assert verdicts(judging, begin(0), SUBSCRIBE) == []
    assert verdicts(judging, begin(1), PING, PONG) == []
    assert verdicts(judging, begin(2), UPDATED) == [("subscribed", None, (2,))]


TEXT = Event("text", "client", text="{")
NO_METHOD = said("client", id=4)
ELSEWHERE = attrs.evolve(TEXT, connection=1)


def refusal(code: int) -> Event:
    return said("server", id=None, error={"code": code, "message": "no"})


@pytest.mark.parametrize(
    ("between", "code", "kept"),
    [
        pytest.param([], -32700, True, id="the error may be about the text"),
        pytest.param([], -1, False, id="it is about neither"),
        pytest.param([refusal(-32700)], -32700, False, id="the text has had its error"),
        pytest.param([PING, PONG], -32700, False, id="what was sent after the text is answered"),
        pytest.param([ELSEWHERE, attrs.evolve(refusal(-32700), connection=1)], -32700, True, id="that was elsewhere"),
    ],
)
def test_a_late_error_without_an_id_may_be_about_a_text_of_an_earlier_example(
    between: list[Event], code: int, kept: bool
) -> None:
    judging = Judging([RULES["malformed-code"]], PROLOGUE)
    verdicts(judging, begin(0), TEXT, *between)
    (verdict,) = verdicts(judging, begin(1), NO_METHOD, refusal(code))
    assert (verdict[1] is None) == kept


def test_a_late_response_comes_with_the_http_exchange_of_its_request() -> None:
    seen: list[list[int]] = []

    @rule("MUST", "server", "basic", "Look at the exchanges.")
    def look(history: History) -> Iterator[Verdict]:
        seen.append(sorted(history.connections[0].exchanges))
        yield from ()

    judging = Judging([look], PROLOGUE)
    head = Event("request", "client", exchange=5, facts={"method": "POST"})
    verdicts(judging, begin(0), head, said("client", 5, id=1, method="ping"))
    verdicts(judging, begin(1), said("server", 9, id=1, result={}))
    assert seen == [[5], [5]]


def test_a_mistake_in_a_rule_costs_no_other_verdict() -> None:
    judging = Judging([mistaken, once], PROLOGUE)
    assert verdicts(judging, begin(0), PING, PONG) == [("once", None, (0,))]
    assert judging.troubles == {"mistaken": "KeyError: 7"}


# --- what a process uses ----------------------------------------------------------------------------------------------


def test_what_a_process_uses() -> None:
    code = "files = [open('/dev/null') for _ in range(30)]; print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        usage = usage_of(os.getpgid(process.pid))
        process.kill()
    if not sys.platform.startswith("linux"):  # which alone tells
        assert usage is None
        return
    assert usage is not None
    assert usage.memory > 1_000_000
    assert 30 < usage.descriptors < 60
    assert usage.threads == 1
    assert usage_of(process.pid) is None


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (Usage(300 << 20, 20, 4), ["the target seems to leak memory: usage grew from 100 to 300 MiB"]),
        (Usage(150 << 20, 20, 4), []),
        (Usage(100 << 20, 90, 70), ["descriptors: usage grew from 20 to 90", "threads: usage grew from 4 to 70"]),
    ],
)
def test_what_has_grown_far_is_told(after: Usage, told: list[str]) -> None:
    found = grown(Usage(100 << 20, 20, 4), after)
    assert len(found) == len(told)
    assert all(each.endswith(end) for each, end in zip(found, told, strict=True))


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("name", "values", "kept"),
    [
        ("descriptors", [10, 15, 20, 25, 30, 35, 40], False),
        pytest.param("descriptors", [10, 15, 20, 25, 30], None, id="too few rounds to tell"),
        pytest.param("descriptors", [10, 15, 20, 25, 25, 30, 35], True, id="a pool that fills"),
        ("threads", [1, 6, 11, 16, 21, 26, 31], False),
        ("memory", [MIB * (50 + 20 * each) for each in range(7)], False),
        pytest.param("memory", [MIB * (50 + each) for each in range(50)], None, id="garbage may be collected later"),
        pytest.param("memory", [MIB * (500 + 20 * each) for each in range(7)], None, id="a large heap"),
        pytest.param("memory", [MIB * 50] * 4, True, id="no growth"),
        ("seconds", [0.01, 0.02, 0.03, 0.04, 0.05], False),
        pytest.param("seconds", [0.1, 0.12, 0.14, 0.16, 0.18], None, id="not even twice as long"),
        pytest.param("seconds", [0.001, 0.3, 0.002, 0.001], True, id="a busy machine"),
        pytest.param("seconds", [0.001, 0.002], None, id="hardly measured"),
    ],
)
def test_what_grows_with_each_call(name: str, values: list[float], kept: bool | None) -> None:
    assert grows(values, name) is (None if kept is None else not kept)


def test_a_request_is_repeated_until_all_is_known() -> None:
    steady: dict[str, float] = {"memory": MIB, "descriptors": 3, "threads": 1, "seconds": 0.001}
    assert not is_decided([steady] * 3)
    assert is_decided([steady] * 4)
    opening = [steady | {"descriptors": 5.0 * each} for each in range(7)]
    assert [is_decided(opening[:count]) for count in (4, 6, 7)] == [False, False, True]
