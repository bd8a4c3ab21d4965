"""Runs plans: turns their symbolic steps into messages, responds to the server's requests, and limits each wait."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import singledispatchmethod
from typing import Any, Final, Literal
from urllib.parse import quote

import attrs
import trio
import trio.testing

from trio_mcp._version import __version__
from trio_mcp.conformance.answers import capabilities_of, input_responses, response_to, round_of
from trio_mcp.conformance.credentials import refusal_in
from trio_mcp.conformance.members import is_refused, member_of, object_of, parsed
from trio_mcp.conformance.offers import Value, value_at
from trio_mcp.conformance.rules.history import LISTS, id_key, is_request, is_response
from trio_mcp.conformance.steps import (
    Ask,
    AwaitResponses,
    Break,
    Cancel,
    Compare,
    Continue,
    Follow,
    Headers,
    Http,
    NextPage,
    OnTask,
    Open,
    Pause,
    Plan,
    Repeat,
    Resume,
    Step,
    TakenValue,
    Tell,
    Write,
)
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.usage import A_ROUND, MOST_ROUNDS, Usage, is_decided, usage_of
from trio_mcp.conformance.wires.wire import OpenWire, Wire
from trio_mcp.errors import NegotiationError, TransportError
from trio_mcp.types import meta
from trio_mcp.types.common import INPUT_REQUIRED
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = [
    "APPLICATION",
    "LAST_PROBE",
    "LAST_WAIT",
    "MOST_EVENTS",
    "STYLES",
    "CheckTerms",
    "PlanRunner",
    "Sent",
    "Talk",
    "is_virtual",
]

STYLES: Final[tuple[Callable[[int], Any], ...]] = (
    # Ids are strings or integers (`basic`, Requests). A small number is what most clients send.
    lambda n: n,
    lambda n: f"id-{n}",
    # A string of digits is a different id from the number that it spells; a server that stores all ids as text in one
    # map confuses the two.
    lambda n: str(n),
    # These ids count down from the greatest integer that every JSON parser keeps exact (RFC 8259, section 6).
    lambda n: 2**53 - 1 - n,
    # Some characters of this id are not ASCII, and one does not fit in 16 bits: JSON escapes it as two surrogates.
    lambda n: f"№ {n} é \U0001f600",
    lambda n: -n,
    # The response must escape these characters again, which a server that builds JSON by joining strings forgets.
    lambda n: f'"{n}" \\ \t',
    # This id is longer than many fixed buffers, but a client may choose it.
    lambda n: f"{'long-' * 40}{n}",
)
"""The functions that make an id from the number of a request, one for each kind of id; all kinds are valid."""

APPLICATION: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete", "tasks/result"})
"""Requests that are handled by the server's application, and so may take any amount of time."""

MOST_AGAIN: Final = 3
"""The maximum number of overdue requests that are sent again after an example (an arbitrary choice)."""

MOST_EVENTS: Final = 10_000
"""The maximum number of a target's events that are kept in memory (an arbitrary choice, far above the few thousand at
which events are judged and forgotten)."""

LAST_WAIT: Final = 2.0
"""Seconds that open requests still get when the time of a check is up (an arbitrary choice: a healthy server has
responded long before)."""

LAST_PROBE: Final = 1.5
"""Seconds that a target gets after ``LAST_WAIT`` to show that it is still alive (an arbitrary choice)."""

LOOKS: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds to wait before each poll of a task (arbitrary): most tasks end at once, and a plan can't wait for others."""

LOOK: Final = 1.0
"""Seconds between two looks at what a target has sent without ending the line, during the handshake (arbitrary)."""

GRACE: Final = 1.0
"""Seconds for which the response to the handshake is still awaited after one with a fault (arbitrary)."""

MOST_ANSWERS: Final = 5
"""The number of input requests of one task after which the kit answers no more (arbitrary)."""

LONGEST_CALL: Final = 0.5
"""Seconds that a request may take to be repeated (arbitrary): repeating a slow one would cost too much."""

LONGEST_REPEAT: Final = 5.0
"""Seconds after which a request is not repeated any more, whether what the process uses grows or not (arbitrary)."""

CLIENT_INFO: Final = {"name": "trio-mcp check", "version": __version__}


_ASKING: Final = (Ask, NextPage, OnTask, Follow, Continue, Http, Write, Repeat, Compare)


def is_virtual() -> bool:
    """Return whether Trio's clock is a virtual one that skips waits."""
    clock = trio.lowlevel.current_clock()
    return isinstance(clock, trio.testing.MockClock) and clock.autojump_threshold < math.inf


@attrs.frozen
class CheckTerms:
    """The limits and capabilities that apply to every connection of a check.

    Attributes:
        deadline: Seconds within which a response must come.
        opening: Seconds for the handshake, which may include the start of a process.
        capabilities: The capabilities that the kit declares as a client; by default all that it supports.
        rate: The maximum number of requests per second; None for no limit.
        end: When the time of the check is up, on Trio's clock: no step begins after it, and each wait ends soon after.
    """

    deadline: float = 10.0
    opening: float = 30.0
    capabilities: Mapping[str, Any] | None = None
    rate: float | None = None
    end: float = math.inf

    @property
    def patience(self) -> float:
        """Seconds after which a request to the application is sent again: a fifth of the deadline."""
        return self.deadline / 5

    def declared(self, revision: str) -> Mapping[str, Any]:
        """Return the capabilities that the kit declares in a revision."""
        return capabilities_of(revision) if self.capabilities is None else self.capabilities


@attrs.define(eq=False)
class Sent:
    """A request that the kit has sent.

    Attributes:
        message: The JSON-RPC message.
        answer: The response; None until it has come.
        began: When the request was sent, on Trio's clock.
        seconds: How many seconds the response took.
        over: Whether nothing more will come: there is a response, the request was cancelled or is overdue, or the
            connection has ended.
        acknowledged: Whether the server has acknowledged the request; only a subscription is acknowledged.
        step: The step that made the request; None for one that the kit repeats, and for a written text.
    """

    message: dict[str, Any]
    answer: dict[str, Any] | None = None
    began: float = attrs.Factory(trio.current_time)
    seconds: float | None = None
    over: bool = False
    acknowledged: bool = False
    step: Ask | None = None

    @property
    def method(self) -> str:
        """The request's method."""
        return str(self.message["method"])

    @property
    def work(self) -> tuple[str, str] | None:
        """The method, and the name or URI that the application is asked for; None for the protocol's own requests."""
        params = object_of(self.message.get("params"))
        return (self.method, str(params.get("name", params.get("uri")))) if self.method in APPLICATION else None

    @property
    def owed(self) -> bool:
        """Whether the server still has to send a response, or to acknowledge a subscription."""
        return not self.over and not self.acknowledged

    @property
    def result(self) -> dict[str, Any]:
        """The result in the response; an empty object without one."""
        return object_of(member_of(self.answer, "result"))


class Talk:
    """One connection: what the kit has sent, what is open, and what the server has asked.

    Attributes:
        wire: The raw connection to the target.
        revision: The revision spoken on the connection.
        capabilities: The capabilities that the kit declares as a client.
        is_open: Whether the connection can still be used for sending, as far as the events seen so far show.
        requests: The requests of this example, in order.
        ending: The HTTP exchanges whose streams have delivered a response, and so should end; the wire closes those
            that don't.
    """

    def __init__(self, wire: Wire, revision: str, capabilities: Mapping[str, Any], count: Callable[[], None]) -> None:
        self.wire = wire
        self.revision = revision
        self.capabilities = capabilities
        self.requests: list[Sent] = []
        self.is_open = True
        self._count = count
        self.questions: deque[dict[str, Any]] = deque()
        self._by_id: dict[Any, Sent] = {}
        self._by_exchange: dict[int, list[Sent]] = {}
        self._broken: dict[int, list[Sent]] = {}
        self._streams: set[int] = set()
        self.ending: set[int] = set()
        self._ids = 0

    @property
    def modern(self) -> bool:
        """Whether the connection speaks a revision of the modern era."""
        return self.revision in MODERN_REVISIONS

    def open_requests(self) -> list[Sent]:
        """Return the requests of this example that may still get a response."""
        return [each for each in self.requests if not each.over]

    def answered(self) -> list[Sent]:
        """Return the requests of this example that have a response."""
        return [each for each in self.requests if each.answer is not None]

    def begin(self) -> None:
        """Forget the requests of the previous example."""
        self.requests.clear()
        self._by_id.clear()
        self._by_exchange.clear()
        self._broken.clear()
        self._streams.clear()
        self.ending.clear()

    def task(self, which: int) -> tuple[str, Sent] | None:
        """Return the id of task number ``which`` of this example, modulo their number, and its call; None without."""
        found = []
        for each in self.answered():
            # The tasks extension puts the task into the result itself, revision 2025-11-25 into a member of it.
            task = each.result if each.result.get("resultType") == "task" else each.result.get("task")
            if isinstance(task, dict) and isinstance(task.get("taskId"), str):
                found.append((task["taskId"], each))
        return found[which % len(found)] if found else None

    def value_of(self, taken: TakenValue) -> Value | None:
        """Return the value that a request takes, from the last result that has it; None without one."""
        work = (taken.method, taken.name)
        calls = (sent for sent in reversed(self.requests) if sent.work == work and not is_refused(sent.answer))
        return next((value for sent in calls if (value := value_at(sent.result, taken.place)) is not None), None)

    def wanted(self, task_id: str) -> dict[str, Any]:
        """Return the input requests of a task, as the last response about it told them."""
        polls = [each for each in self.answered() if each.method == "tasks/get"]
        about = [each for each in polls if member_of(each.message, "params", "taskId") == task_id]
        return object_of(about[-1].result.get("inputRequests")) if about else {}

    # --- sending ------------------------------------------------------------------------------------------------------

    def new_id(self, style: int = 0) -> Any:
        """Return an id that has not been used on this connection."""
        # Ids are counted over the whole connection, and not for each example: in the legacy era an id must not be used
        # twice in a session (`basic`, Requests).
        self._ids += 1
        return STYLES[style % len(STYLES)](self._ids)

    def meta(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the ``_meta`` of a valid request, with changes; a change to None removes a key."""
        entries: dict[str, Any] = {}
        if self.modern:
            entries = {
                meta.PROTOCOL_VERSION: self.revision,
                meta.CLIENT_INFO: CLIENT_INFO,
                meta.CLIENT_CAPABILITIES: self.capabilities,
            }
        return {key: value for key, value in (entries | dict(changes or {})).items() if value is not None}

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, step: Ask | None = None) -> Sent:
        """Send a request, and return its record without waiting for the response."""
        step = Ask(method, params) if step is None else step
        changes = dict(step.meta)
        request_id = self.new_id(step.style) if step.id is None else step.id
        if step.token:
            # Like ids, tokens are strings or integers. They are far from any id, so that a server that confuses the two
            # is found.
            changes.setdefault(meta.PROGRESS_TOKEN, f"token-{self._ids}" if step.style % 2 else 10**6 + self._ids)
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = dict(params)
        if entries := self.meta(changes):
            message["params"] = {**message.get("params", {}), "_meta": entries}
        return await self._send(message, step.headers, step)

    async def again(self, sent: Sent) -> Sent:
        """Send a request once more, with another id and without its progress token."""
        message = {**sent.message, "id": self.new_id()}
        if entries := object_of(member_of(message, "params", "_meta")):
            # A token must be unique among the requests that are open (`basic/utilities/progress`), and the first
            # request is still open.
            rest = {key: value for key, value in entries.items() if key != meta.PROGRESS_TOKEN}
            message["params"] = {**message["params"], "_meta": rest}
        return await self._send(message, {})

    async def _send(self, message: dict[str, Any], headers: Headers, step: Ask | None = None) -> Sent:
        # The request is registered before it is sent: the response may be read while this task is still writing.
        sent = self.expect(message, step)
        await self.wire.send(message, headers=headers)
        return sent

    def expect(self, message: dict[str, Any], step: Ask | None = None) -> Sent:
        """Register a request, so that its response is recognized."""
        sent = Sent(message, step=step)
        self._count()
        self.requests.append(sent)
        self._by_id[id_key(message["id"])] = sent
        return sent

    # --- what has come ------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Update the state of the connection from an event."""
        # A request that can't get a response any more counts as over, so that no wait for it lasts until the deadline.
        if event.kind == "close":
            self.is_open = False
            for sent in self.requests:
                sent.over = True
            self.questions.clear()
        elif event.kind == "message":
            for message in event.message if isinstance(event.message, list) else [event.message]:
                self._take_message(message, event)
        elif event.kind == "request" and (broken := self._broken.pop(event.facts.get("resumes", 0), None)):
            # Requests that were open on the broken stream can now get their responses on the stream that resumes it.
            for sent in broken:
                sent.over = False
            self._by_exchange[event.exchange or 0] = broken
        elif event.kind == "response" and event.headers.get("content-type", "").startswith("text/event-stream"):
            self._streams.add(event.exchange or 0)
        elif event.kind == "end" and event.exchange is not None:
            self.ending.discard(event.exchange)
            if event.facts.get("goes_on"):
                return
            # No more responses will come on this stream, unless the client resumes it.
            ended = [sent for sent in self._by_exchange.pop(event.exchange, ()) if not sent.over]
            for sent in ended:
                sent.over = True
            self._broken[event.exchange] = ended

    def _take_message(self, message: Any, event: Event) -> None:
        if event.sender == "client":
            # Only this event shows in which exchange a request went out: the wire numbers exchanges when it sends.
            sent = self._by_id.get(id_key(message.get("id"))) if is_request(message) else None
            if sent is not None and event.exchange is not None:
                self._by_exchange.setdefault(event.exchange, []).append(sent)
        elif is_response(message):
            sent = self._by_id.get(id_key(message.get("id")))
            # Only the first response counts for the plan; a rule judges whether there is a second one.
            if sent is not None and sent.answer is None:
                sent.answer = message
                sent.seconds = trio.current_time() - sent.began
                sent.over = True
            # Only a stream that carries a request's response ends with it; the stream of a session does not.
            if event.exchange in self._streams and event.exchange in self._by_exchange:
                self.ending.add(event.exchange)
        # Servers of the modern era must not send requests. A server that does so breaks a rule, and gets no response,
        # because a response would hide how the server behaves without a response.
        elif is_request(message) and not self.modern:
            self.questions.append(message)
        elif isinstance(message, dict) and message.get("method") == "notifications/subscriptions/acknowledged":
            named = id_key(member_of(message, "params", "_meta", meta.SUBSCRIPTION_ID))
            for sent in self.requests:
                if sent.method == "subscriptions/listen" and id_key(sent.message["id"]) == named:
                    sent.acknowledged = True

    async def stop(self, how: Literal["close", "reset", "half"] = "close", which: int = 0) -> None:
        """End the connection, or over HTTP an open response."""
        await self.wire.stop(how, which)
        # Over HTTP, perhaps only a response has ended, and the connection is still usable.
        self.is_open = self.wire.is_open

    async def respond(self) -> None:
        """Respond to the server's requests."""
        while self.questions and self.is_open:
            question = self.questions.popleft()
            await self.wire.send(response_to(question, self.capabilities))


class PlanRunner:
    """Runs plans over connections to one target.

    Attributes:
        tape: Records the events. It may be emptied between examples, with `forget`.
        talks: The connections of this example, the main one first.
        asked: How many requests were sent, over all connections.
        slow: The requests that the application did not serve in time: each method, with the name or URI of the
            requested item.
        longest_pause: The maximum number of seconds that a `Pause` may take: a fast target needs no long pauses.
        is_late: Whether a request of this example got no response in time.
        undecided: A sentence about each request that had no response when the time of the check was up, but had not
            been open for long enough to break a rule.
        is_refused: Whether the target has refused the handshake, which it may do.
        is_virtual: Whether time is virtual. If it is, the runner looks at new events only at fixed points, so that the
            same responses lead to the same traffic.
    """

    def __init__(self, open_wire: OpenWire, revision: str, terms: CheckTerms | None = None) -> None:
        self.tape = Tape(MOST_EVENTS)
        self.revision = revision
        self.terms = CheckTerms() if terms is None else terms
        self.talks: list[Talk] = []
        self.longest_pause = math.inf
        self.is_virtual = is_virtual()
        self._open_wire = open_wire
        self._opened = 0
        self._seen = 0
        self.asked = 0
        self.slow: dict[tuple[str, str], None] = {}
        self.is_late = False
        self.undecided: list[str] = []
        self.is_refused = False
        self._repeats = 0
        # The time, on Trio's clock, at which every wait ends that has not ended earlier.
        self._limit = self.terms.end + LAST_WAIT
        self._extra = contextlib.AsyncExitStack()
        self._next_request = trio.current_time()
        # The calls, by what they asked for, whose tasks did not end while they were followed.
        self._endless: set[tuple[str, str] | None] = set()

    # --- connections --------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Talk]:
        """Open the main connection, with its handshake, for as long as the block runs.

        Raises:
            TransportError: If the target can't be reached, or does not respond to the handshake as it must.
            NegotiationError: If the target refuses the handshake, or speaks another revision.
        """
        async with self._opened_wire(self.revision) as talk:
            self.talks = [talk]
            await self._shake_hands(talk)
            yield talk

    @contextlib.asynccontextmanager
    async def _opened_wire(self, revision: str, capabilities: Mapping[str, Any] | None = None) -> AsyncIterator[Talk]:
        declared = self.terms.declared(revision) if capabilities is None else capabilities
        number = self._opened
        # The counter is advanced before the wire is opened: opening may fail, and then the mark about the failure
        # carries the number of the attempt.
        self._opened += 1
        async with self._open_wire(self.tape, number, revision) as wire:
            yield Talk(wire, revision, declared, self._count)

    def _count(self) -> None:
        self.asked += 1

    async def _shake_hands(self, talk: Talk) -> None:
        if talk.modern:
            hello = await talk.ask("server/discover")
        else:
            params = {
                "protocolVersion": talk.revision,
                "capabilities": talk.capabilities,
                "clientInfo": CLIENT_INFO,
            }
            hello = await talk.ask("initialize", params)
        if not await self._greeted(talk, hello):
            raise TransportError(self.unanswered(hello) + self.last_words(talk))
        if hello.answer is None:
            # A status of HTTP is a refusal, too: the client may lack a token, or the path be that of another service.
            self.is_refused = any(
                e.kind == "response" and int(e.facts.get("status", 200)) >= 400 for e in self.tape.events
            )
            if talk.wire.transport == "stdio":
                # A process reports why it ended on its standard error, which is another pipe, so the report may still
                # be on its way.
                await self.until(lambda: "standard error" in self.last_words(talk), 0.2)
            refusal = refusal_in(self.tape.events, named="first" if talk.wire.tokens else "")
            raise TransportError(
                f"the target ended the connection in response to {hello.method}{self.last_words(talk)}{refusal}"
            )
        if not hello.result:
            self.is_refused = _is_error(hello.answer)
            raise NegotiationError(
                f"the target refused {hello.method} in revision {talk.revision}: "
                f"{json.dumps(hello.answer.get('error', hello.answer))[:500]}"
            )
        if not talk.modern:
            # The check does not continue in the revision that the server prefers, because other rules apply to that
            # revision, and the caller decides which revision is checked next.
            if (spoken := hello.result.get("protocolVersion")) != talk.revision:
                raise NegotiationError(f"the target speaks revision {spoken!r}, not {talk.revision}")
            await talk.wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _greeted(self, talk: Talk, hello: Sent) -> bool:
        """Wait for the response to the handshake, but not for long once the target has sent a spoilt one."""
        place = len(self.tape.events)
        deadline = trio.current_time() + self.terms.opening
        while (left := deadline - trio.current_time()) > 0:
            # A line without an end leaves no event, so the wire is asked for it now and then.
            if await self.until(lambda: hello.over or self._is_spoilt(talk, place), min(left, LOOK)):
                # The true response may still be on its way, for example after a message that is about nothing.
                return hello.over or await self.until(lambda: hello.over, min(left, GRACE))
            if trio.current_time() >= self._limit:
                break
            rest = bytes(getattr(talk.wire, "unended", b""))
            if _is_object(rest):
                self.tape.note("mark", "kit", connection=talk.wire.number, text=rest, what="unended")
                return False
        return hello.over

    def _is_spoilt(self, talk: Talk, place: int) -> bool:
        """Return whether the target has sent something since a place that was meant as the response to the handshake.

        That is a response to another request, or a message in pieces.
        """
        said = [e for e in self.tape.events[place:] if e.connection == talk.wire.number and e.sender == "server"]
        if any(event.kind == "message" and is_response(event.message) for event in said):
            return True
        texts = [event.text or b"" for event in said if event.kind == "text"]
        # The last lines are tried, as a program may print a greeting before its first message.
        return any(_is_object(joint.join(texts[at:])) for at in range(len(texts)) for joint in (b"", b"\n"))

    @staticmethod
    def unanswered(sent: Sent) -> str:
        """Return a message that says for how long a request has had no response."""
        seconds = round(trio.current_time() - sent.began, 1)
        return f"the target did not respond to {sent.method} within {seconds:g} seconds"

    def last_words(self, talk: Talk) -> str:
        """Return what the events tell about a connection that has ended, to append to an error message."""
        said = []
        for event in self.tape.events:
            if event.connection != talk.wire.number:
                continue
            if event.kind == "text" and event.sender == "server":
                said.append(f"it sent something other than JSON: {(event.text or b'')[:100]!r}")
            elif event.kind == "close":
                said.append(f"{event.facts.get('reason')}")
                if event.facts.get("status") is not None:
                    said.append(f"exit status {event.facts['status']}")
            elif event.kind == "response" and int(event.facts.get("status", 200)) >= 400:
                said.append(f"HTTP status {event.facts['status']}")
            elif event.kind == "mark" and event.facts.get("what") == "stderr":
                said.append(f"standard error: {bytes(event.text or b'').decode('utf-8', 'replace')[:200]}")
        # Only the last five items are quoted, because what came just before the end most likely explains the end.
        return ": " + "; ".join(said[-5:]) if said else ""

    # --- events -------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget the events so far."""
        self.pump()
        self.tape.events.clear()
        self._seen = 0

    def pump(self) -> None:
        """Update the state of the connections from new events."""
        events = self.tape.events
        while self._seen < len(events):
            event = events[self._seen]
            self._seen += 1
            for talk in self.talks:
                if talk.wire.number == event.connection:
                    talk.take(event)

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition is true, and respond to the server's requests meanwhile; return False on a timeout."""
        deadline = min(trio.current_time() + timeout, self._limit)
        while True:
            # The server's requests come first: many conditions become true only once the server has its response.
            await self._look()
            if condition():
                return True
            left = deadline - trio.current_time()
            if left <= 0 or not await self.tape.until(lambda: self._news(condition), left):
                return condition()

    def _news(self, condition: Callable[[], bool]) -> bool:
        self.pump()
        return condition() or any(talk.questions and talk.is_open for talk in self.talks)

    async def _look(self) -> None:
        """Update the connections from new events, and respond to the server's requests."""
        if self.is_virtual:
            # All tasks run first, because the events seen at this point must not depend on the order in which Trio runs
            # tasks.
            await trio.testing.wait_all_tasks_blocked()
        self.pump()
        for talk in self.talks:
            await talk.respond()

    # --- plans --------------------------------------------------------------------------------------------------------

    async def run(self, plan: Plan, *, example: int = 0, settle: bool = True) -> None:
        """Run a plan on the main connection and on those that the plan opens, which are closed at its end.

        Args:
            plan: The plan.
            example: The number of the example, for the mark that begins it.
            settle: Whether to wait at the end until every request has its response, and to cancel those that never end.
        """
        self.tape.note("mark", "kit", connection=self.talks[0].wire.number, what="begin", example=example)
        # Events that have come by now still belong to the last example, so they are handled before its requests are
        # forgotten.
        self.pump()
        for talk in self.talks:
            talk.begin()
        self.is_late = False
        async with contextlib.AsyncExitStack() as self._extra:
            try:
                for step in plan:
                    if trio.current_time() >= self.terms.end:
                        break
                    if not self.is_virtual:
                        await self._look()
                    await self._do(step)
                if settle:
                    await self.settle()
                    await self._cancel_rest()
            finally:
                # The other connections are dropped even after a cancellation: they are closed right after this, and no
                # response may be sent over them any more.
                self.talks = self.talks[:1]

    def _talk(self, number: int) -> Talk | None:
        found = [talk for talk in self.talks if talk.is_open]
        return found[number % len(found)] if found else None

    async def settle(self) -> None:
        """Wait until every request has its response or, if it lasts, its acknowledgement; record overdue requests.

        Nothing limits the time that a tool may take. So an overdue request for the application's work is sent again, up
        to twice. If both responses come soon, the first request was lost; otherwise the work is `slow`.
        """

        def waited_for() -> list[tuple[Talk, Sent]]:
            return [(talk, sent) for talk in self.talks for sent in talk.requests if sent.owed]

        def is_over() -> bool:
            # Streams must have ended, too: rules judge their ends, and a plan that continues at once would leave them
            # no time to end.
            return not waited_for() and not any(talk.ending for talk in self.talks)

        began = trio.current_time()
        patience = self.terms.patience
        if await self.until(is_over, patience):
            return
        # Requests that don't reach the application get the whole deadline. Calls of slow tools don't, because they
        # would use up the time of the check.
        rest = self.terms.deadline - patience
        if any(sent.method not in APPLICATION for _, sent in waited_for()) and await self.until(is_over, rest):
            return
        late = waited_for()
        self.is_late = True
        if self._is_up:
            await self._decide(late)
            return
        # The report does not count what the kit sends from here on among the messages of an exchange.
        self.tape.note("mark", "kit", connection=self.talks[0].wire.number, what="again")
        lost = [await self._is_soon(talk, sent) for talk, sent in late[:MOST_AGAIN]]
        # A call that seems to be lost may be only slow this once, so it gets the whole deadline, too.
        if any(lost) and await self.until(is_over, rest):
            return
        if self._is_up:
            await self._decide(late)
            return
        for number, (talk, sent) in enumerate(late):
            if not sent.owed:
                continue  # the response to this request has come after all
            again = number < len(lost) and lost[number]
            facts: dict[str, Any] = {"answered_again": again} if sent.method in APPLICATION else {}
            self._note_overdue(talk, sent, trio.current_time() - began, **facts)
            if sent.work is not None and not again:
                self.slow[sent.work] = None
            await self._cancel(talk, sent, None)

    @property
    def _is_up(self) -> bool:
        """Whether the time of the check is up, and the last wait is over."""
        return trio.current_time() >= self._limit

    async def _decide(self, late: Iterable[tuple[Talk, Sent]]) -> None:
        """Record the requests that are open at the end of the check as overdue or undecided, and cancel all of them."""
        for talk, sent in late:
            waited = trio.current_time() - sent.began
            # A request to the application is never overdue at the end of the check: nothing limits the time that the
            # application may take, and only more time would show whether it is slow or the call was lost.
            is_work = sent.method in APPLICATION
            if not sent.owed or (is_work and waited < self.terms.patience):
                continue
            if waited >= self.terms.deadline and not is_work:
                self._note_overdue(talk, sent, waited)
            else:
                self.undecided.append(f"{self.unanswered(sent)}, when the time of the check was up")
        for talk, sent in late:
            await self._cancel(talk, sent, None)

    def note_overdue(self, talk: Talk, sent: Sent, **facts: Any) -> None:
        """Record that a request has had no response, if it has been open for the whole deadline."""
        if (seconds := trio.current_time() - sent.began) >= self.terms.deadline:
            self._note_overdue(talk, sent, seconds, **facts)

    def _note_overdue(self, talk: Talk, sent: Sent, seconds: float, **facts: Any) -> None:
        self.tape.note(
            "mark",
            "kit",
            connection=talk.wire.number,
            what="overdue",
            id=sent.message["id"],
            seconds=seconds,
            **facts,
        )

    async def _is_soon(self, talk: Talk, sent: Sent) -> bool:
        """Send a request for the application's work twice more; return whether both responses come soon."""
        if sent.method not in APPLICATION:
            return False
        # The request is sent twice because a single quick response may come from a cache, or from a tool whose time
        # varies.
        for _ in range(2):
            again = await talk.again(sent)
            await self.until(lambda again=again: again.over, self.terms.deadline / 10)  # type: ignore[misc]
            if again.answer is None:
                await self._cancel(talk, again, None)
                return False
        return True

    async def _cancel_rest(self) -> None:
        """Cancel the requests that would stay open forever."""
        for talk in self.talks:
            for sent in talk.open_requests():
                await self._cancel(talk, sent, None)

    async def _cancel(self, talk: Talk, sent: Sent, reason: str | None) -> None:
        # The request counts as over before the notification is sent: a cancelled request may get a response meanwhile,
        # or none at all (`basic/utilities/cancellation`).
        sent.over = True
        if talk.is_open:
            await talk.wire.cancel(sent.message["id"], reason)

    async def probe(self) -> float | None:
        """Ask whether the target is still alive; return how many seconds its response took, or None if there was none.

        If the connection has ended, nothing is sent.
        """
        talk = self.talks[0]
        if not talk.is_open:
            return None
        # Requests that were open at the end may have used up the last wait, so the probe has a time limit of its own.
        self._limit = max(self._limit, trio.current_time() + LAST_PROBE)
        place = len(self.tape.events)
        # The modern era has no ping, but every server must respond to `server/discover`.
        sent = await talk.ask("server/discover" if talk.modern else "ping")
        await self.until(lambda: sent.over, self.terms.deadline)
        seconds = trio.current_time() - sent.began
        # A target that has ended the connection is not unresponsive, and rules judge that end by its own event.
        if sent.answer is None and not talk.is_open:
            return None
        sent.over = True
        if sent.answer is None and seconds < self.terms.deadline:
            self.undecided.append(f"{self.unanswered(sent)}, when the time of the check was up")
            return None
        what = "alive" if sent.answer is not None else "dead"
        # A target owes no response to a probe that could not be sent, for example because the kit had closed its
        # output.
        unsent = any(event.facts.get("what") == "unsent" for event in self.tape.events[place:])
        if what == "dead" and not unsent:
            self._note_overdue(talk, sent, seconds)
        self.tape.note("mark", "kit", connection=talk.wire.number, what=what, seconds=seconds, id=sent.message["id"])
        self.pump()
        return seconds if what == "alive" else None

    # --- steps --------------------------------------------------------------------------------------------------------

    async def _do(self, step: Step) -> None:
        if isinstance(step, AwaitResponses):
            await self.settle()
        elif isinstance(step, Pause):
            # A plain sleep would not do, because the server's requests must get their responses meanwhile.
            await self.until(lambda: False, min(step.seconds, self.longest_pause))
        elif isinstance(step, Open):
            await self._open(step)
        elif (talk := self._talk(step.connection)) is not None:
            await self._pace(step)
            # These steps build on a response that may just have come, so new events are handled first.
            if isinstance(step, (NextPage, Continue, OnTask, Follow)) or (isinstance(step, Ask) and step.taken):
                await self._look()
            await self._on(step, talk)

    async def _pace(self, step: Step) -> None:
        if self.terms.rate is not None and isinstance(step, _ASKING):
            now = trio.current_time()
            # Unused time does not add up, because a server that limits the rate might refuse a burst after a quiet
            # time.
            self._next_request = max(now, self._next_request) + 1 / self.terms.rate
            await self.until(lambda: False, self._next_request - now)

    async def _open(self, step: Open) -> None:
        try:
            talk = await self._extra.enter_async_context(
                self._opened_wire(step.revision or self.revision, step.capabilities)
            )
            # The talk is added before the handshake, because only the talks in this list see their events, and so the
            # response.
            self.talks.append(talk)
            if step.user:
                talk.wire.act_as(step.user)
            await self._shake_hands(talk)
        # A target need not serve several connections, nor every revision, so the rest of the plan just runs without
        # this connection.
        except (TransportError, NegotiationError) as exc:
            self.tape.note("mark", "kit", connection=self._opened - 1, what="unsent", reason=str(exc))

    @singledispatchmethod
    async def _on(self, step: Any, talk: Talk) -> None:
        raise TypeError(f"not a step: {step!r}")

    @_on.register
    async def _(self, step: Ask, talk: Talk) -> None:
        params = step.params
        for each in step.taken:
            if (value := talk.value_of(each)) is None:
                # The call is left out: with a made-up value in its place it would be another call.
                where = ".".join(map(str, each.place))
                reason = f"no result of {each.method} of {each.name!r} in this example has a value at {where}"
                self.tape.note("mark", "kit", connection=talk.wire.number, what="unsent", reason=reason)
                return
            params = _with(params, each, value)
        await talk.ask(step.method, params, step)

    @_on.register
    async def _(self, step: Tell, talk: Talk) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": step.method}
        if step.params is not None:
            message["params"] = dict(step.params)
        await talk.wire.send(message, headers=step.headers)

    @_on.register
    async def _(self, step: Write, talk: Talk) -> None:
        replaced = {
            b'"$id"': json.dumps(talk.new_id()).encode(),
            b'"$id2"': json.dumps(talk.new_id()).encode(),
            b'"$meta"': json.dumps(talk.meta(), separators=(",", ":")).encode(),
        }
        texts = [_replaced(text, replaced) for text in step.texts]
        # The server decides whether to respond to a faulty text, so no response is expected.
        if not step.fault:
            # Texts that are not framed are pieces of one text.
            for text in texts if step.framed else b"".join(texts).splitlines():
                with contextlib.suppress(ValueError):
                    message = json.loads(text)
                    for each in message if isinstance(message, list) else [message]:
                        if is_request(each):
                            talk.expect(each)
        await talk.wire.write(texts, framed=step.framed, headers=step.headers)

    @_on.register
    async def _(self, step: Http, talk: Talk) -> None:
        await talk.wire.http(step)

    @_on.register
    async def _(self, step: Cancel, talk: Talk) -> None:
        found = talk.answered() if step.answered else talk.open_requests()
        if found:
            await self._cancel(talk, found[step.which % len(found)], step.reason)

    @_on.register
    async def _(self, step: NextPage, talk: Talk) -> None:
        found = [
            each
            for each in talk.answered()
            if each.method in (*LISTS, "skills/list", "tasks/list") and isinstance(each.result.get("nextCursor"), str)
        ]
        if found:
            sent = found[step.which % len(found)]
            await talk.ask(sent.method, {"cursor": sent.result["nextCursor"]})

    @_on.register
    async def _(self, step: OnTask, talk: Talk) -> None:
        if (made := talk.task(step.which)) is not None:
            task_id, _ = made
            params: dict[str, Any] = {"taskId": task_id}
            if step.method == "subscriptions/listen":
                params = {"notifications": {"taskIds": [task_id]}}
            elif step.method == "tasks/update":
                params["inputResponses"] = {**input_responses(talk.wanted(task_id), "valid"), **step.more}
            await talk.ask(step.method, params, Ask(step.method, headers=step.headers, meta=step.meta))

    @_on.register
    async def _(self, step: Follow, talk: Talk) -> None:
        if (made := talk.task(step.which)) is None:
            return
        task_id, call = made
        waits = deque(LOOKS[:2] if call.work in self._endless else LOOKS)
        answered: set[str] = set()
        while waits and talk.is_open and trio.current_time() < self.terms.end:
            # A server may be polled as often as this: it only suggests an interval, which may be a minute.
            await self.until(lambda: False, waits.popleft())
            got = await talk.ask("tasks/get", {"taskId": task_id}, Ask("tasks/get", meta=step.meta))
            await self.until(lambda got=got: got.over, self.terms.deadline)  # type: ignore[misc]
            if got.result.get("status") not in ("working", "input_required"):
                return
            wanted = {key: each for key, each in talk.wanted(task_id).items() if key not in answered}
            if wanted and len(answered) < MOST_ANSWERS:
                answered |= wanted.keys()
                params = {"taskId": task_id, "inputResponses": input_responses(wanted, "valid")}
                await talk.ask("tasks/update", params, Ask("tasks/update", meta=step.meta))
                waits = deque(LOOKS)
            await self._pace(step)
        self._endless.add(call.work)

    @_on.register
    async def _(self, step: Continue, talk: Talk) -> None:
        found = [each for each in talk.answered() if each.result.get("resultType") == INPUT_REQUIRED]
        if found:
            sent = found[step.which % len(found)]
            # The retry is a separate request, with a new id and metadata that `ask` adds (`basic/patterns/mrtr`).
            params = {key: value for key, value in sent.message["params"].items() if key != "_meta"}
            # A retry declares what the first request declared: with other capabilities it would be another request.
            declared = member_of(sent.message, "params", "_meta", meta.CLIENT_CAPABILITIES)
            changes = {} if declared is None else {meta.CLIENT_CAPABILITIES: declared}
            again = Ask(sent.method, headers=step.headers, meta=changes)
            await talk.ask(sent.method, params | round_of(sent.result, step.how), again)

    @_on.register
    async def _(self, step: Repeat, talk: Talk) -> None:
        if self._usage(talk) is None:
            return
        self._repeats += 1
        rounds: list[dict[str, Any]] = []
        calls = 0
        began = trio.current_time()
        while True:
            seconds = []
            for _ in range(A_ROUND):
                sent = await talk.ask(step.method, step.params)
                if not await self.until(lambda sent=sent: sent.over, LONGEST_CALL) or sent.seconds is None:  # type: ignore[misc]
                    return
                seconds.append(sent.seconds)
                if not calls:
                    self.tape.note("mark", "kit", connection=talk.wire.number, what="again")
                calls += 1
                await self._pace(step)
            if (usage := self._usage(talk)) is None:
                return
            rounds.append(attrs.asdict(usage) | {"seconds": statistics.median(seconds), "calls": calls})
            self.tape.note("mark", "kit", connection=talk.wire.number, what="usage", run=self._repeats, **rounds[-1])
            is_up = trio.current_time() - began > LONGEST_REPEAT or trio.current_time() >= self.terms.end
            if is_up or len(rounds) >= MOST_ROUNDS or is_decided(rounds):
                break
        self.tape.note("mark", "kit", connection=talk.wire.number, what="repeated", requests=1)

    def _usage(self, talk: Talk) -> Usage | None:
        pid = getattr(talk.wire, "pid", None)
        return None if pid is None else usage_of(pid)

    @_on.register
    async def _(self, step: Compare, talk: Talk) -> None:
        async def made(requests: Iterable[tuple[str, Mapping[str, Any] | None]]) -> bool:
            for method, params in requests:
                sent = await talk.ask(method, params)
                if not await self.until(lambda sent=sent: sent.answer is not None, self.terms.patience):  # type: ignore[misc]
                    return False
                await self._pace(step)
            return True

        if not await made(step.requests):
            return
        # A result that changes by itself, such as the time of day, says nothing about the refused request.
        self.tape.note("mark", "kit", connection=talk.wire.number, what="again")
        is_made = await made(step.requests)
        number, count = talk.wire.number, len(step.requests)
        self.tape.note("mark", "kit", connection=number, what="repeated", requests=count, compared=True)
        for call in step.refused if is_made else ():
            # A call that is served may rightly change something.
            if not await made([call]) or not is_refused(talk.requests[-1].answer) or not await made(step.requests):
                return

    @_on.register
    async def _(self, step: Break, talk: Talk) -> None:
        await talk.stop(step.how, step.which)

    @_on.register
    async def _(self, step: Resume, talk: Talk) -> None:
        await talk.wire.resume(step.which)


def _with(value: Any, taken: TakenValue, found: Value) -> Any:
    """Return parameters with a taken value in its place; unchanged if they have no such place."""
    first, *others = taken.into
    if isinstance(value, dict) and first in value:
        made: Any = dict(value)
    elif isinstance(value, list) and isinstance(first, int) and -1 < first < len(value):
        made = list(value)
    else:
        return value
    made[first] = (
        _with(value[first], attrs.evolve(taken, into=tuple(others)), found)
        if others
        else _as(value[first], taken, found)
    )
    return made


def _as(replaced: Any, taken: TakenValue, found: Value) -> Any:
    """Return a taken value in the form that the parameter needs, as far as it has one."""
    text = str(found)
    if taken.before and text.startswith(taken.before) and text.endswith(taken.after):
        return text
    if taken.before or taken.after:
        return f"{taken.before}{quote(text, safe='')}{taken.after}"
    if isinstance(replaced, str):
        return text
    # Only ASCII digits: `int` reads others as well, and refuses very long ones.
    is_number = isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) < 16
    return int(found) if is_number and isinstance(replaced, int) else found


def _is_error(response: Any) -> bool:
    """Return whether a response is a well-formed error."""
    return isinstance(member_of(response, "error", "code"), int) and "result" not in response


def _is_object(text: bytes) -> bool:
    """Return whether a text is a JSON object; text that does not end like one is not parsed."""
    return text.rstrip().endswith(b"}") and isinstance(parsed(text), dict)


def _replaced(text: bytes, values: Mapping[bytes, bytes]) -> bytes:
    for name, value in values.items():
        text = text.replace(name, value)
    return text
