"""Rules that no sentence of the specification states, and that every user expects a server to keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from trio_mcp.conformance.members import is_refused, member_of, object_of
from trio_mcp.conformance.rules.common import (
    LARGEST,
    asked_about,
    code_of,
    declares,
)
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest, is_notification, is_request
from trio_mcp.conformance.rules.model import Verdict, broken, expected, held, judged
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.usage import grows
from trio_mcp.types import error_codes

__all__ = ["WORKING"]

# --- a server that lives ----------------------------------------------------------------------------------------------


@expected(
    "Go on after a line that is not JSON, or not a message.",
    "One line of noise, from a wrapper script or a buggy client, costs everyone the session and all that is under way. "
    "JSON-RPC has errors for such lines, and all SDKs go on.",
    moves=("malformed-text", "malformed-message"),
    transports=("stdio", "memory"),
)
def malformed_input_survived(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.transport not in ("stdio", "memory"):
            continue
        odd = [event for event in connection.events if event.sender == "client" and _is_odd(event)]
        for event in odd:
            place = connection.position(event)
            later = (asked for asked in connection.requests if connection.position(asked.event) > place)
            if (answer := next((asked.answers[0] for asked in later if asked.answers), None)) is not None:
                yield held(answer)
        end = connection.close
        if end is not None and end.sender == "server" and (last := _blamed(connection, odd)) is not None:
            said = (last.text or repr(last.message).encode())[:40]
            yield broken(end, f"the server ended after {said!r}")


def _blamed(connection: Connection, odd: Sequence[Event]) -> Event | None:
    """Return the odd line that must have ended a server, or None if something else may have done it."""
    harmless = max((connection.position(asked.event) for asked in connection.requests if asked.answers), default=0)
    is_working = any(asked.method in _WORK and not asked.answers for asked in connection.requests)
    if is_working or any(event.facts.get("what") == "half closed" for event in connection.events):
        return None
    later = [event for event in connection.events[harmless + 1 :] if event.sender == "client" and event.kind in _SAID]
    blamed = [event for event in later if any(event is each for each in odd)]
    # A notification, such as a cancellation that comes at a bad moment, may have ended the server as well.
    others = [event for event in later if not (_is_harmless(event) or any(event is each for each in odd))]
    return blamed[0] if blamed and not others else None


def _is_harmless(event: Event) -> bool:
    return is_request(event.message) or member_of(event.message, "method") == "notifications/initialized"


_SAID: Final = ("message", "text")


def _is_odd(event: Event) -> bool:
    """Return whether an event is text that is not JSON, or JSON that is neither a message nor meant as one."""
    if event.kind == "text":
        return len(event.text or b"") <= LARGEST
    message = event.message
    # An array may be meant as a batch, and what has a result or an error as a response.
    return (
        event.kind == "message"
        and not isinstance(message, list)
        and not (is_request(message) or is_notification(message))
        and not object_of(message).keys() & {"result", "error"}
    )


WORKING: Final = 1.0
"""Seconds for which a server works on a call, from which on it must also answer others (arbitrary: long enough that a
busy machine is not to blame)."""

_WORK: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
_QUICK: Final = frozenset({"ping", "server/discover"})


@expected(
    "Answer a ping, and hear a cancellation, while a tool runs.",
    "A client that can't reach a server takes it for dead, and a user who presses stop waits for a tool that can't be "
    "stopped.",
    moves=("calls-at-once", "cancel-open"),
)
def answers_while_working(history: History) -> Iterator[Verdict]:
    for connection in history:
        quick = [asked for asked in connection.requests if asked.method in _QUICK and asked.answers]
        calls = [asked for asked in connection.requests if asked.method in _WORK and asked.answers]
        for asked in quick if calls else ():
            sent, came = connection.position(asked.event), connection.position(asked.answers[0])
            for call in calls:
                end = call.answers[0]
                running = connection.position(call.event) < sent < connection.position(end)
                seconds = end.time - asked.event.time
                if running and seconds >= WORKING:
                    name = call.params.get("name", call.params.get("uri"))
                    problem = (
                        f"{asked.method} had to wait for {seconds:.1f} s until {call.method} of {name!r:.60} was over"
                    )
                    yield judged(came < connection.position(end), asked.answers[0], problem)
                    break


# --- what is declared -------------------------------------------------------------------------------------------------

_NEEDS: Final = {
    "tools/call": ("tools",),
    "resources/read": ("resources",),
    "resources/subscribe": ("resources.subscribe",),
    "resources/unsubscribe": ("resources.subscribe",),
    "prompts/get": ("prompts",),
    "completion/complete": ("completions",),
    "logging/setLevel": ("logging",),
    "tasks/list": ("tasks.list",),
    "subscriptions/listen": (
        "tools.listChanged",
        "prompts.listChanged",
        "resources.listChanged",
        "resources.subscribe",
    ),
}
"""The methods that a capability promises. The lists are left to `lists_answered`, which is a MUST."""


@expected(
    "Know the methods of each capability that is declared.",
    "A client offers its user what the server has declared, and can't use it.",
    moves=(
        "call-tool",
        "read-resource",
        "get-prompt",
        "subscribe",
        "complete-unknown",
        "set-level",
        "listen",
        "task-list",
    ),
)
def declared_methods_known(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, *_NEEDS):
        found = [need for need in _NEEDS[asked.method] if declares(connection.server_capabilities, need)]
        # Some servers also answer -32601 for a tool or a prompt that they don't have.
        if found and _is_listed(connection, asked):
            kept = code_of(asked) != error_codes.METHOD_NOT_FOUND
            yield judged(kept, answer, f"{found[0]} is declared, but {asked.method} was answered with -32601")


def _is_listed(connection: Connection, asked: RecordedRequest) -> bool:
    params = asked.params
    match asked.method:
        case "tools/call":
            tool = connection.tools.get(params.get("name", ""))
            # 2025-11-25 `basic/utilities/tasks`, Tool-Level Negotiation: -32601 also means that the tool must be called
            # as a task, or must not.
            support = None if tool is None else object_of(tool.get("execution")).get("taskSupport")
            return tool is not None and support != "required" and "task" not in params
        case "prompts/get":
            return params.get("name") in connection.listed["prompts/list"]
        case "resources/read":
            return params.get("uri") in connection.listed["resources/list"]
    return True


# --- what stays behind ------------------------------------------------------------------------------------------------


def _measured(history: History, name: str) -> Iterator[tuple[Event, float, float, bool]]:
    """Yield the last measurement of each request that was repeated, and how a figure has changed, if that is clear.

    The values are the first and the last of the figure, and whether it has grown with each call.
    """
    for connection in history:
        marks = (event for event in connection.events if event.kind == "mark" and event.facts.get("what") == "usage")
        for _, run in groupby(marks, key=lambda event: event.facts.get("run")):
            rounds = list(run)
            found = [float(event.facts[name]) for event in rounds]
            if (is_growing := grows(found, name)) is not None:
                yield rounds[-1], found[0], found[-1], is_growing


_STEADY: Final = "A server runs for days and serves many calls: what each of them keeps or costs adds up."
_REPEATED: Final = ("repeat-calls",)


@expected("Use no more memory with each call.", _STEADY, moves=_REPEATED, transports=["stdio"])
def memory_steady(history: History) -> Iterator[Verdict]:
    for mark, first, last, is_growing in _measured(history, "memory"):
        sizes = f"from {first / 2**20:.0f} to {last / 2**20:.0f} MiB"
        yield judged(not is_growing, mark, f"{mark.facts['calls']} calls made the memory grow {sizes}")


@expected("Keep no more files, sockets or threads open with each call.", _STEADY, moves=_REPEATED, transports=["stdio"])
def descriptors_steady(history: History) -> Iterator[Verdict]:
    for name in ("descriptors", "threads"):
        for mark, first, last, is_growing in _measured(history, name):
            problem = f"{mark.facts['calls']} calls made the number of {name} grow from {first:.0f} to {last:.0f}"
            yield judged(not is_growing, mark, problem)


@expected("Take no longer with each call.", _STEADY, moves=_REPEATED, transports=["stdio"])
def time_steady(history: History) -> Iterator[Verdict]:
    for mark, first, last, is_growing in _measured(history, "seconds"):
        times = f"{first * 1000:.0f} ms at first, and {last * 1000:.0f} ms after {mark.facts['calls']} calls"
        yield judged(not is_growing, mark, f"a call took {times}")


@expected(
    "Change nothing in a call that is refused.",
    "A user who is told that a call failed will repeat it, and takes everything to be as it was.",
    moves=("compare-after-refusal",),
)
def refused_call_changes_nothing(history: History) -> Iterator[Verdict]:
    for connection in history:
        marks = [event for event in connection.events if event.kind == "mark" and event.facts.get("compared")]
        for mark in marks:
            place, count = connection.position(mark), int(mark.facts.get("requests", 0))
            before = [asked for asked in connection.requests if connection.position(asked.event) < place][-2 * count :]
            after = [asked for asked in connection.requests if connection.position(asked.event) > place]
            while len(before) == 2 * count and len(after) > count and _is_refused(after[0]):
                yield from _compared(before[:count], before[count:], after[1 : count + 1])
                before, after = [*before[count:], *after[1 : count + 1]], after[count + 1 :]


def _is_refused(asked: RecordedRequest) -> bool:
    return bool(asked.answers) and is_refused(asked.answers[0].message)


def _compared(*rounds: Sequence[RecordedRequest]) -> Iterator[Verdict]:
    for first, again, after in zip(*rounds, strict=True):
        known = _seen(first)
        # Without the same answer twice before the refusal, another one after it shows nothing.
        if after.answers and known is not None and known == _seen(again) and _asks(first) == _asks(after):
            name = first.params.get("name", first.params.get("uri"))
            what = first.method if name is None else f"{first.method} of {name!r:.60}"
            yield judged(
                _seen(after) == known, after.answers[0], f"{what} gave another result after a call was refused"
            )


def _asks(asked: RecordedRequest) -> Any:
    return asked.method, {key: value for key, value in asked.params.items() if key != "_meta"}


def _seen(asked: RecordedRequest) -> Any:
    """Return what a request shows of the state: its result without the metadata, or its error; None without either."""
    if asked.result is not None:
        return {key: value for key, value in asked.result.items() if key != "_meta"}
    return asked.error
