"""The calls: what each does, how each of its attempts has ended for its caller, and what listeners hear."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import trio

from tests.chaos.tools import STEPS, topic
from tests.soak.tools import digest
from trio_mcp import Answers, Backoff, Client, McpError, RequestTimeout, TransportError, TrioMcpError
from trio_mcp.client.targets import LinkFactory
from trio_mcp.extensions import Tasks
from trio_mcp.http.server.legacy.sharing import LOST
from trio_mcp.low_level import streamable_http_client
from trio_mcp.types import ProgressNotificationParams

TIMEOUT = 30.0
"""Seconds that an attempt has."""

PATIENCE = 60.0
"""Seconds within which a call is tried again: the file may be locked as a supervisor starts."""

MOST = 300
"""Calls under way at once, beyond which none is begun, as a crowd of clients has an end. Chosen."""

PAUSES = (0.2, 0.5, 1.0)
"""Seconds until a call is tried again: the first time, the second, and each further one. Chosen."""

RETURNS = Backoff(first=0.5, longest=2.0, attempts=20)
"""How a session's client comes back for a stream. By default it would wait longer each time: a supervisor that is down
twice while a call waits would cost it the time that it has."""

MODERN, LEGACY = "2026-07-28", "2025-11-25"


@attrs.define(eq=False)
class Attempt:
    """An attempt of a call, and how it has ended.

    Attributes:
        name: Its id in the ledger.
        kind: A key of `KINDS`.
        route: The name of its route.
        began: When it began, on the monotonic clock.
        ended: When it ended.
        outcome: ``succeeded``, ``cancelled`` by the caller, ``wrong``, ``store`` if the store could not be used,
            ``refused`` if the server has certainly not begun it, ``lost`` if the caller can't know, or ``failed``.
        note: The error.
    """

    name: str
    kind: str
    route: str
    began: float = attrs.Factory(time.monotonic)
    ended: float = 0.0
    outcome: str = ""
    note: str = ""


@attrs.frozen(eq=False)
class Route:
    """A way to the server.

    Attributes:
        name: Its name, which is also that of the user.
        url: The URL.
        kept: Whether its connections are kept; otherwise each call has a client of its own.
        weight: Its share of the calls.
        mode: The revision; with that of the legacy era, all calls belong to one session.
    """

    name: str
    url: str
    kept: bool
    weight: int
    mode: str = MODERN

    def target(self) -> LinkFactory:
        return partial(streamable_http_client, self.url, headers={"x-user": self.name}, reconnect=RETURNS)

    @contextlib.asynccontextmanager
    async def client(self, answers: Answers | None = None) -> AsyncIterator[Client]:
        extensions = [Tasks()] if self.mode == MODERN else []
        async with Client(self.target(), mode=self.mode, answers=answers, extensions=extensions) as client:
            yield client


def outcome_of(error: Exception) -> str:
    """Return what an error tells the caller of a call."""
    if isinstance(error, McpError):
        if "store of tasks" in error.message or "the event store failed" in error.message:
            return "store"
        if error.message == LOST:
            return "lost"
        return "refused" if isinstance(error.data, dict) and error.data.get("ending") is True else "failed"
    if isinstance(error, TransportError):
        busy = getattr(error, "status", 0) == 503 and getattr(error, "retry_after", None) is not None
        return "refused" if busy or not error.sent else "lost"
    return "failed"


# --- what a call does -------------------------------------------------------------------------------------------------

Does = Callable[[Client, Attempt, random.Random], Awaitable[bool]]


async def _call(client: Client, attempt: Attempt, tool: str, **more: Any) -> str:
    options = {"timeout": TIMEOUT, **more.pop("options", {})}
    result = await client.call_tool(tool, {"call": attempt.name, **more}, **options)
    if result.is_error:
        attempt.outcome, attempt.note = "store" if result.text.startswith("store: ") else "failed", result.text
    return str(result.text)


async def _look(client: Client, attempt: Attempt, rng: random.Random) -> bool:
    return await _call(client, attempt, "look", seconds=min(rng.expovariate(30), 0.5)) == digest(attempt.name, 0)


async def _steps(client: Client, attempt: Attempt, rng: random.Random) -> bool:
    heard: list[float] = []

    def note(progress: ProgressNotificationParams) -> None:
        if attempt.ended:  # a call that has ended has no progress
            attempt.outcome = "wrong"
        heard.append(progress.progress)

    text = await _call(client, attempt, "steps", seconds=rng.uniform(0, 0.3), options={"on_progress": note})
    return text == digest(attempt.name, 0) and heard == [*range(1, STEPS + 1)]


async def _ask(client: Client, attempt: Attempt, rng: random.Random) -> bool:
    return await _call(client, attempt, "ask") == f"this {digest(attempt.name, 0)}"


async def _slow(client: Client, attempt: Attempt, rng: random.Random) -> bool:
    """Give up, often before the call is sent, or just as it ends."""
    with trio.move_on_after(rng.uniform(0, 0.6)):
        return await _call(client, attempt, "look", seconds=rng.uniform(0.2, 1.0)) == digest(attempt.name, 0)
    attempt.outcome = "cancelled"
    return True


async def _put(client: Client, attempt: Attempt, rng: random.Random) -> bool:
    return await _call(client, attempt, "put") == digest(attempt.name, 0)


async def _work(client: Client, attempt: Attempt, rng: random.Random) -> bool:
    """Start a task, and ask for its result until it has one: a poll may meet a process that dies."""
    arguments = {"call": attempt.name, "seconds": rng.uniform(0.2, 2.0)}
    task = await Tasks.of(client).start("work", arguments, timeout=TIMEOUT)
    while True:
        try:
            result = await task.result(timeout=TIMEOUT, total_timeout=TIMEOUT)
        except TrioMcpError as exc:
            # While the store is away, and then the supervisor, a task takes longer than one wait for its result.
            known = isinstance(exc, RequestTimeout) or outcome_of(exc) != "failed"
            if not known or time.monotonic() > attempt.began + PATIENCE:
                raise
            await trio.sleep(PAUSES[0])
        else:
            return str(result.text) == digest(attempt.name, 0)


KINDS: dict[str, tuple[Does, int, bool]] = {
    "look": (_look, 44, False),
    "steps": (_steps, 15, False),
    "ask": (_ask, 12, False),
    "slow": (_slow, 10, False),
    "put": (_put, 14, True),
    "work": (_work, 5, True),
}
"""What a call does, how often it is drawn, and whether it needs the store."""

SINGLE = ("look", "put")
"""The kinds of calls on a connection of their own."""


async def answer(_: object) -> dict[str, str]:
    """Take some time over it, often longer than a new key needs until it signs."""
    await trio.sleep(random.choice((0.0, 0.05, 0.5, 4.0)))
    return {"text": "this"}


class Load:
    """Calls at an even rate, whatever becomes of them.

    Args:
        routes: The ways to the server.
        rate: Calls a second.
        seed: Decides which calls.

    Attributes:
        attempts: Those that have ended.
        under_way: Those that have not.
        calls: How many calls have ended, by how they have for their callers.
        left_out: How many were not begun, as too many were under way.
    """

    def __init__(self, routes: list[Route], rate: float, seed: str) -> None:
        self._routes, self._rate = routes, rate
        self.attempts: list[Attempt] = []
        self.under_way: set[Attempt] = set()
        self.calls: dict[str, str] = {}
        self.left_out = 0
        self._waiting = 0
        self._rng = random.Random(seed)
        self._number = 0

    async def run(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make calls until an event is set, and wait for those that are under way; it has started with its clients."""
        async with contextlib.AsyncExitStack() as stack:
            clients = {}
            for route in self._routes:
                if route.kept:
                    clients[route] = await stack.enter_async_context(route.client(Answers(elicitation=answer)))
            task_status.started()
            due = trio.current_time()
            async with trio.open_nursery() as nursery:
                while not stop.is_set():
                    due += 1 / self._rate
                    await trio.sleep_until(due)
                    if self._waiting >= MOST:
                        self.left_out += 1
                    else:
                        route = self._rng.choices(self._routes, [each.weight for each in self._routes])[0]
                        nursery.start_soon(self._one, route, clients.get(route))

    async def _one(self, route: Route, client: Client | None) -> None:
        self._number += 1
        kinds = [kind for kind in KINDS if client is not None or kind in SINGLE]
        if route.mode == LEGACY:
            kinds.remove("work")  # the tasks of that era are others
        kind = self._rng.choices(kinds, [KINDS[each][1] for each in kinds])[0]
        name, rng = f"{route.name}-{self._number}", random.Random(self._rng.random())
        until = time.monotonic() + PATIENCE
        self._waiting += 1
        for turn in range(1000):
            attempt = Attempt(f"{name}/{turn}", kind, route.name)
            await self._try(route, client, attempt, rng)
            if attempt.outcome not in ("refused", "lost") or time.monotonic() > until:
                break
            await trio.sleep(PAUSES[min(turn, len(PAUSES) - 1)])
        self._waiting -= 1
        self.calls[name] = attempt.outcome

    async def _try(self, route: Route, client: Client | None, attempt: Attempt, rng: random.Random) -> None:
        does = KINDS[attempt.kind][0]
        self.under_way.add(attempt)
        try:
            if client is not None:
                right = await does(client, attempt, rng)
            else:
                async with route.client() as own:
                    right = await does(own, attempt, rng)
            attempt.outcome = attempt.outcome or ("succeeded" if right else "wrong")
        except TrioMcpError as exc:
            attempt.outcome, attempt.note = outcome_of(exc), f"{type(exc).__name__}: {exc}"[:300]
        attempt.ended = time.monotonic()
        self.under_way.discard(attempt)
        self.attempts.append(attempt)


# --- listeners --------------------------------------------------------------------------------------------------------


class Listener:
    """One that listens to a topic, and listens again when its subscription has ended.

    Attributes:
        number: The number of the topic.
        later: Whether it is also told of the last change while it did not listen; otherwise it looks by itself then.
        heard: When it began to listen (``on``), was told of a change (``told``), or lost its subscription (``off``).
    """

    def __init__(self, number: int, *, later: bool = False) -> None:
        self.number, self.later = number, later
        self.heard: list[tuple[float, str]] = []

    async def run(self, client: Client) -> None:
        """Listen until cancelled."""
        while True:
            try:
                async with client.listen(resources=[topic(self.number)], timeout=TIMEOUT) as events:
                    self.note("on")
                    async for _ in events:
                        self.note("told")
            except TrioMcpError:
                pass
            self.note("off")
            await trio.sleep(PAUSES[0])

    def note(self, what: str) -> None:
        """Note that something of `heard` has happened now."""
        self.heard.append((time.monotonic(), what))
