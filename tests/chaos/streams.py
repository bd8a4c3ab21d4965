"""Sessions of the legacy era whose streams break: what each connection carried, and what became of each call.

The client is one of its own, as `Client` hides what is judged here: the ids of events, and each connection.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import trio
from pydantic_core import from_json

from tests.chaos.carried import Asked, Carried, Received, StreamCall
from tests.chaos.load import LEGACY, PATIENCE, PAUSES, TIMEOUT, Listener
from tests.chaos.tools import LIST, topic
from tests.http_peer import ACCEPT, request
from tests.peer import ME
from trio_mcp.http.server.legacy.streams import STORE_FAILED
from trio_mcp.http.sse import EventDecoder, ServerSentEvent

SESSIONS = 4
"""Chosen."""

CUT = 0.6
"""How often the client breaks a connection that carries a stream, as long as there were few. Chosen."""

MOST_CUT = 4
"""Connections of one call that the client breaks at most. Chosen."""

EARLY = 0.1
"""How often that time counts from the request, so that there may be no event id yet. Chosen."""

BACK = 0.3
"""How often the client resumes a stream after an earlier event than the last one that it has. Chosen."""

STANDING = 3.0
"""Seconds for which the client keeps a GET without an event id to resume, on average. Chosen."""

MOST = 20
"""Calls of one session under way at once. Chosen."""

AGAIN = (502, 503, 504)
"""The statuses after which a request is sent again, if it does no harm."""

GONE = 410
"""The status of a GET whose stream can't be resumed."""

KINDS = {"look": 2, "steps": 5, "quiz": 5, "knock": 3, "stall": 3}
"""The kinds of calls, and how often each is drawn. What is called is the tool of that name; ``stall`` is cancelled."""


class StreamSession:
    """A session whose client breaks its connections and resumes its streams, in whichever process accepts.

    Args:
        name: Its name.
        urls: The ways to the server, of which each request takes any.
        number: The number of the topic to which it subscribes.
        rng: Decides what it does.

    Attributes:
        calls: The calls.
        standing: The connections that carried the stream of messages that belong to no request.
        data: The data of each event, by its id.
        clashes: The ids that came with other data than before.
        noted: The data of log messages on that stream, by the ids of their events.
        asked: The server's questions, by the ids of their events.
        odd: What no request of a session may get: when, and what it was.
        listeners: What it heard of its topic, and of the list of resources.
        alive: Whether it served a call at the end, and was unknown after its end; None if it has not come to that.
    """

    def __init__(self, name: str, urls: list[str], number: int, rng: random.Random) -> None:
        self.name = name
        self._urls, self._number, self._rng = urls, number, rng
        self._headers = {"x-user": name, "accept": ACCEPT, "mcp-protocol-version": LEGACY}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(timeout=TIMEOUT, limits=limits, verify=False, trust_env=False)
        self._ids = itertools.count(1)
        self._under_way = 0
        self.calls: list[StreamCall] = []
        self.standing: list[Carried] = []
        self.data: dict[str, bytes] = {}
        self.clashes: list[str] = []
        self.noted: dict[str, str] = {}
        self.asked: dict[str, Asked] = {}
        self.odd: list[tuple[float, str]] = []
        self.listeners = [Listener(number, later=True), Listener(LIST, later=True)]
        self.alive: bool | None = None

    # --- requests ------------------------------------------------------------------------------------------------

    def _request(self, method: str, body: Any = None, cursor: str = "") -> Any:
        """Send a request on a connection of its own, so that any process may have it."""
        headers = {**self._headers, **({"last-event-id": cursor} if cursor else {})}
        return self._http.stream(method, self._rng.choice(self._urls), headers=headers, json=body)

    async def _whole(self, method: str, body: Any = None) -> tuple[int, Any]:
        """Send a request until there is a status that stays; return it, and the body."""
        until = time.monotonic() + PATIENCE
        for turn in itertools.count():  # noqa: ASYNC913 - each turn waits
            with contextlib.suppress(httpx.TransportError):
                async with self._request(method, body) as response:
                    data = await response.aread()
                    if response.status_code not in AGAIN:
                        if "mcp-session-id" in response.headers:
                            self._headers["mcp-session-id"] = response.headers["mcp-session-id"]
                        return response.status_code, data
            if time.monotonic() > until:
                break
            await trio.sleep(PAUSES[min(turn, len(PAUSES) - 1)])
        return 0, b""

    async def _expect(self, status: int, body: Any) -> bool:
        """Send a message that may be sent again; note another status than this."""
        found, data = await self._whole("POST", body)
        if found != status:
            self.odd.append((time.monotonic(), f"{body.get('method', 'an answer')} got {found} {data[:200]!r}"))
        return found == status

    # --- the session ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the session, and subscribe."""
        capabilities: dict[str, Any] = {"elicitation": {}, "sampling": {}}
        params = {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": ME}
        await self._expect(200, request("initialize", params, 0))
        await self._expect(202, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        await self._expect(200, request("resources/subscribe", {"uri": topic(self._number)}, next(self._ids)))

    async def close(self) -> None:
        """Call the server once more, and end the session."""
        params = {"name": "look", "arguments": {"call": f"{self.name}-last", "seconds": 0}}
        status, data = await self._whole("POST", request("tools/call", params, next(self._ids)))
        ended, _ = await self._whole("DELETE")
        after, _ = await self._whole("POST", request("ping", None, next(self._ids)))
        # A DELETE that was sent again finds no session.
        self.alive = status == 200 and b'"result"' in data and ended in (204, 404) and after == 404

    async def aclose(self) -> None:
        """Close what it has open."""
        await self._http.aclose()

    async def run(self, stop: trio.Event, pause: float) -> None:
        """Make calls until an event is set, and wait for those that are under way.

        Args:
            stop: The event.
            pause: Seconds between two calls, on average.
        """
        async with trio.open_nursery() as nursery:
            while not stop.is_set():
                if self._under_way < MOST:
                    nursery.start_soon(self._call, self._rng.choices([*KINDS], [*KINDS.values()])[0], nursery)
                await trio.sleep(self._rng.expovariate(1 / pause))

    # --- a call --------------------------------------------------------------------------------------------------

    async def _call(self, kind: str, nursery: trio.Nursery) -> None:
        number = next(self._ids)
        call = StreamCall(f"{self.name}-{number}", kind, number)
        self.calls.append(call)
        tool = "steps" if kind == "stall" else kind
        arguments: dict[str, Any] = {"call": call.name}
        if tool in ("look", "steps"):
            arguments["seconds"] = 8.0 if kind == "stall" else min(self._rng.expovariate(1), 4.0)
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
        body = request("tools/call", params, number)
        self._under_way += 1
        with trio.move_on_after(PATIENCE):
            await self._until_response(call, body, nursery)
        self._under_way -= 1
        call.ended = time.monotonic()
        if not call.outcome:
            call.outcome = "responded" if call.responses else "unended" if call.ids else "lost"

    async def _until_response(self, call: StreamCall, body: Any, nursery: trio.Nursery) -> None:
        take = partial(self._of_call, call, nursery)
        await self._carry(call.connections, "POST", body, take, self._cut(call))
        (post,) = call.connections
        if post.note == "ConnectError":
            call.outcome = "refused"
            return
        if post.status in AGAIN and not post.note.startswith("{"):  # nginx says so
            call.outcome = "lost"
        elif post.status == 503 and not call.ids:
            unknown = "outcome is unknown" in post.note
            call.outcome = "lost" if unknown else "refused"
        elif post.note.startswith("{") and post.status != 202:
            take(Received("", post.ended, post.note.encode()))
        for turn in itertools.count():  # noqa: ASYNC913 - each turn waits
            if call.outcome or call.responses or not (ids := call.ids) or call.cancelled:
                break
            await trio.sleep(self._rng.uniform(0, PAUSES[min(turn, len(PAUSES) - 1)]))
            cursor = self._rng.choice(ids) if self._rng.random() < BACK else ids[-1]
            await self._carry(call.connections, "GET", None, take, self._cut(call), cursor)
            if call.connections[-1].status == GONE:
                call.outcome = "gone"
        if call.cancelled:
            call.outcome = "cancelled"

    def _cut(self, call: StreamCall) -> float:
        """Return the seconds from the first event until the client breaks the next connection of a call."""
        often = len(call.connections) < MOST_CUT and self._rng.random() < CUT
        return self._rng.expovariate(2) if often else TIMEOUT

    def _of_call(self, call: StreamCall, nursery: trio.Nursery, event: Received) -> None:
        """Take an event of a call's stream that has not come before."""
        if call.kind == "stall" and len(call.ids) == 1:
            nursery.start_soon(self._cancel, call)
        if not event.data:
            return
        message = from_json(event.data)
        if "method" not in message:
            call.responses[event.id] = message
            return
        if call.responses:
            call.late.append(message["method"])
        if message["method"] == "notifications/progress":
            call.progress.append(message["params"]["progress"])
        else:
            self._ask(event, message, nursery)

    async def _cancel(self, call: StreamCall) -> None:
        await trio.sleep(self._rng.choice((0.0, 0.1, 1.0)))
        params = {"requestId": call.id, "reason": "it was given up"}
        if await self._expect(202, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}):
            call.cancelled = time.monotonic()

    def _ask(self, event: Received, message: Any, nursery: trio.Nursery) -> None:
        """Answer a question, with its token."""
        params = message["params"]
        if message["method"] == "elicitation/create":
            token = params["message"]
            result: Any = {"action": "accept", "content": {"text": token}}
        elif message["method"] == "sampling/createMessage":
            token = params["messages"][0]["content"]["text"]
            content = {"type": "text", "text": token}
            result = {"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"}
        else:  # a question was withdrawn
            return
        asked = self.asked[event.id] = Asked(token)
        nursery.start_soon(self._answer, asked, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _answer(self, asked: Asked, body: Any) -> None:
        await trio.sleep(self._rng.choice((0.0, 0.05, 1.0)))
        if await self._expect(202, body):
            asked.accepted = time.monotonic()

    # --- streams -------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Keep the stream of messages that belong to no request, until cancelled."""
        async with trio.open_nursery() as nursery:
            take = partial(self._of_standing, nursery)
            while True:
                ids = [event.id for each in self.standing for event in each.events]
                # Without an id the server knows where the client left off, but not what a broken connection lost.
                cursor = self._rng.choice(ids[-5:]) if ids and self._rng.random() < BACK else ids[-1] if ids else ""
                await self._carry(self.standing, "GET", None, take, self._rng.expovariate(1 / STANDING), cursor)
                for listener in self.listeners:
                    listener.note("off")
                await trio.sleep(self._rng.uniform(0, PAUSES[0]))

    def _of_standing(self, nursery: trio.Nursery, event: Received) -> None:
        if not event.data:
            return
        message = from_json(event.data)
        match message.get("method"):
            case "notifications/resources/updated" if message["params"]["uri"] == topic(self._number):
                self.listeners[0].note("told")
            case "notifications/resources/list_changed":
                self.listeners[1].note("told")
            case "notifications/message":
                self.noted[event.id] = message["params"]["data"]
            case "sampling/createMessage" | "notifications/cancelled":
                self._ask(event, message, nursery)
            case _:
                self.odd.append((time.monotonic(), f"{event.data[:200]!r} came on the stream of no request"))

    async def _carry(
        self,
        connections: list[Carried],
        method: str,
        body: Any,
        take: Callable[[Received], object],
        cut: float,
        cursor: str = "",
    ) -> None:
        """Carry a stream on one connection, which is cut some time after its first event; take what is new."""
        carried = Carried(method, cursor)
        connections.append(carried)
        with trio.CancelScope() as scope:

            def note(event: Received) -> None:
                if not carried.events:
                    scope.deadline = min(scope.deadline, trio.current_time() + cut)
                carried.events.append(event)

            if self._rng.random() < EARLY:
                scope.deadline = trio.current_time() + cut
            try:
                async with self._request(method, body, cursor) as response:
                    await self._read(carried, response, note, take)
            except httpx.TransportError as exc:
                carried.note = type(exc).__name__
        carried.cut = scope.cancelled_caught
        carried.ended = time.monotonic()
        # The status 200 of a stream, 202 of a call that was cancelled, and those that say that it may be tried again.
        if carried.status not in (0, 200, 202, GONE, *AGAIN) and STORE_FAILED not in carried.note:
            self.odd.append((carried.ended, f"{method} {cursor} got {carried.status} {carried.note}"))

    async def _read(
        self,
        carried: Carried,
        response: httpx.Response,
        note: Callable[[Received], object],
        take: Callable[[Received], object],
    ) -> None:
        carried.status = response.status_code
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            carried.note = (await response.aread()).decode()
            return
        if carried in self.standing:
            for listener in self.listeners:
                listener.note("on")
        decoder = EventDecoder()
        async for chunk in response.aiter_bytes():
            for event in decoder.feed(chunk):
                assert isinstance(event, ServerSentEvent)
                # The error that takes the place of a response that could not be stored has no id.
                id = "" if STORE_FAILED.encode() in event.data else decoder.last_event_id
                received = Received(id, time.monotonic(), event.data)
                note(received)
                before = self.data.get(id)
                if not (id and event.data):
                    take(received)
                elif before is None:
                    self.data[id] = event.data
                    take(received)
                elif event.data != before:
                    self.clashes.append(id)


class StreamLoad:
    """Sessions whose streams break, beside the other calls.

    Args:
        urls: The ways to the server.
        rate: Calls a second, in all.
        seed: Decides what they do.

    Attributes:
        sessions: The sessions.
    """

    def __init__(self, urls: list[str], rate: float, seed: str) -> None:
        rng = random.Random(seed)
        self._pause = SESSIONS / rate
        self.sessions = [
            StreamSession(f"streams-{number}", urls, number, random.Random(rng.random())) for number in range(SESSIONS)
        ]

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Open the sessions, keep their standing streams for the block, and end the sessions."""
        try:
            await self._each(StreamSession.open)
            async with trio.open_nursery() as nursery:
                for session in self.sessions:
                    nursery.start_soon(session.follow)
                yield
                nursery.cancel_scope.cancel()
            await self._each(StreamSession.close)
        finally:
            await self._each(StreamSession.aclose)

    async def run(self, stop: trio.Event) -> None:
        """Make calls until an event is set, and wait for those that are under way."""
        await self._each(lambda session: session.run(stop, self._pause))

    async def _each(self, does: Callable[[StreamSession], Awaitable[object]]) -> None:
        async with trio.open_nursery() as nursery:
            for session in self.sessions:
                nursery.start_soon(does, session)
