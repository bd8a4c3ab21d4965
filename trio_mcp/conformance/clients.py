"""`check_client`: checks a client against generated servers."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time as clock
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Literal, TypeAlias, Unpack

import attrs
import trio
import trio.testing

from trio_mcp._keywords import refuse_unknown
from trio_mcp._nursery import background_nursery, closing, start
from trio_mcp._settings import completed
from trio_mcp.client.targets import LinkFactory
from trio_mcp.conformance.judging import first_broken
from trio_mcp.conformance.options import ClientCheckOptions
from trio_mcp.conformance.outcomes import CheckReport, Ended, Failure, Outcome, Preview, Progress
from trio_mcp.conformance.rules.catalogue import judge, select
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule, Verdict
from trio_mcp.conformance.run import MOST_EVENTS
from trio_mcp.conformance.serving.http import PATH, HttpServing
from trio_mcp.conformance.serving.lines import serve_lines
from trio_mcp.conformance.serving.protection import CHOICES, TRAPS
from trio_mcp.conformance.serving.script import (
    EVERY_TURN,
    LEGACY_TURNS,
    MODERN_TURNS,
    Script,
    protected_scripts,
    scripts,
)
from trio_mcp.conformance.serving.server import ScriptedServer
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.errors import TransportError
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.link import Link
from trio_mcp.sockets.stream_link import stream_link
from trio_mcp.stdio.child_process import start_process
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.testing.strategies.drawing import draws
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, LEGACY_REVISIONS

__all__ = ["ClientTarget", "StreamClient", "check_client", "preview_client"]


@attrs.frozen
class StreamClient:
    """An in-memory client that reads and writes the bytes on its connections itself.

    Attributes:
        run: Runs the client, given a function that opens a connection to the server.
        transport: The transport that the client uses: ``memory`` for a message per line, ``http`` for Streamable HTTP.
        name: The client's name in the report.
    """

    run: Callable[[Callable[[], Awaitable[trio.abc.Stream]]], Awaitable[object]]
    transport: Literal["memory", "http"] = "memory"
    name: str = "client"


ClientTarget: TypeAlias = (
    Sequence[str] | Callable[[LinkFactory], Awaitable[object]] | Callable[[str], Awaitable[object]] | StreamClient
)
"""A client: the command that starts it, to which the URL of a server is appended; a function that takes a target for a
`Client` and connects to it, which is a URL if the server is protected; or a `StreamClient`."""

NEWEST: Final = (LATEST_LEGACY, LATEST_MODERN)
"""The revisions that the servers speak by default."""

BULK: Final = 50
"""How many scripts are drawn at once (an arbitrary choice: smaller batches cost more for each script, and larger ones
would block a program's other tasks for longer)."""
MOST_STEPS: Final = 500
"""The maximum number of events in an example in which the client signs in (arbitrary: a few dozen are enough)."""
SHRINKING: Final = 60
"""The maximum number of times that a client is run to find a simpler script that shows a fault (arbitrary)."""
SHRINKING_TIME: Final = 20.0
"""Seconds that the search for a simpler script may take (arbitrary)."""
REPEATS: Final = 5
"""How many times the simplest script is run again, to say how reliably it shows the fault (arbitrary)."""
GRACE: Final = 1.0
"""Seconds that a client, and any processes it has left behind, have to exit before they are terminated (arbitrary)."""
OVERTIME: Final = 5.0
"""Seconds for which a client may keep running after the time of the check is up (arbitrary)."""
PORTS: Final = re.compile(r"127\.0\.0\.1:[0-9]+")
LAST_WORDS: Final = 500
"""How many bytes from the end of a client's standard error are kept, to quote the last line if it fails (arbitrary)."""


@attrs.define
class _Run:
    """The result of running a client once against a generated server.

    Attributes:
        events: The recorded traffic.
        ended: Whether the client ended by itself in time.
        cut: Whether the client was cut short because the check was stopped or had used up its time.
        seconds: How long the client ran.
        trouble: How the client failed; empty if it did not.
    """

    events: list[Event]
    ended: bool = False
    cut: bool = False
    seconds: float = 0.0
    trouble: str = ""


async def check_client(client: ClientTarget, **options: Unpack[ClientCheckOptions]) -> CheckReport:
    """Check a client against generated servers, each of which behaves in a different way that a client may meet.

    In each example the client connects, does what it is made for, and ends. A command is started with the URL of a
    Streamable HTTP server as its last argument. A function is called with a target for a `Client` that leads to a
    server in memory; with ``protected``, it is called with a URL, too.

    Args:
        client: The client.
        options: See `CheckOptions` and `ClientCheckOptions`. ``revisions`` are those that the servers speak;
            ``deadline`` is the time that the client has to respond to a request from a server.

    Raises:
        ValueError: If a rule or revision is unknown, or a `StreamClient` is to sign in.
        TypeError: If an option is unknown.
        TransportError: If the command can't be started, or the client does not connect or can't sign in.
    """
    refuse_unknown(check_client, options, ClientCheckOptions)
    given = completed(ClientCheckOptions, options)
    check = _Check(_reached(client, given["protected"]), given)
    ended: Ended = "complete"
    # The revisions take turns, example by example, so that even a check that runs out of time has used each revision.
    sources = [check.scripts(revision) for revision in check.revisions]
    for number, source in zip(range(given["examples"]), itertools.cycle(sources), strict=False):
        await check.example(number, next(source))
        if (on_progress := given["on_progress"]) is not None:
            progress = (check.examples, given["examples"], check.seconds, check.requests, len(check.failures))
            on_progress(Progress(*progress))
        if check.stop.is_set():
            ended = "interrupted"
            break
        if check.seconds > given["time"] and check.examples < given["examples"]:
            ended = "time"
            break
    # The client itself is blamed only if it hung with every server, because some of these servers keep any client
    # waiting. If it hung with only some of them, a note in the report says so.
    if check.examples and check.hung == check.examples and ended != "interrupted":
        ended = "target hangs"
    return check.report(ended)


async def preview_client(client: ClientTarget, **options: Unpack[ClientCheckOptions]) -> Preview:
    """Return what `check_client` would do with the same arguments, without starting anything.

    Raises:
        ValueError, TypeError: As in `check_client`.
    """
    refuse_unknown(preview_client, options, ClientCheckOptions)
    given = completed(ClientCheckOptions, options)
    await trio.lowlevel.checkpoint()
    _reached(client, given["protected"])
    turns = {
        name: (*EVERY_TURN, *(LEGACY_TURNS if name in LEGACY_REVISIONS else MODERN_TURNS))
        for name in given["revisions"] or NEWEST
    }
    if given["protected"]:
        ways = [f"{name}: {value}" for name, values in CHOICES.items() for value in values]
        turns = dict.fromkeys(turns, (*ways, *(f"trap: {name}" for name in TRAPS)))
    return Preview((), tuple(select(given["rules"], "client")), turns)


@attrs.frozen
class _AtUrl:
    """A function that connects to the URL of a server."""

    run: Callable[[Any], Awaitable[object]]

    @property
    def name(self) -> str:
        return getattr(self.run, "__qualname__", "client")


_Reached: TypeAlias = Sequence[str] | StreamClient | _AtUrl
"""A client, with how it reaches a server."""


def _reached(client: ClientTarget, protected: bool) -> _Reached:
    if protected and isinstance(client, StreamClient):
        raise ValueError("a StreamClient can't sign in, as it gets no URL: pass a command or a function")
    if not callable(client):
        return client
    return _AtUrl(client) if protected else _over_links(client)


def _over_links(client: Callable[[Any], Awaitable[object]]) -> StreamClient:
    async def run(connect: Callable[[], Awaitable[trio.abc.Stream]]) -> None:
        @contextlib.asynccontextmanager
        async def opened() -> AsyncIterator[Link]:
            # The link carries bytes instead of objects, so that the client's own reading and writing of JSON is checked
            # as well.
            async with stream_link(await connect()) as link:
                yield link

        factory: Callable[[], AbstractAsyncContextManager[Link]] = opened
        await client(factory)

    return StreamClient(run, name=getattr(client, "__qualname__", "client"))


class _Check:
    """The state and the findings of one check of a client."""

    def __init__(self, client: _Reached, given: ClientCheckOptions) -> None:
        self.examples = self.requests = self.hung = 0
        self.failures: dict[str, Failure] = {}
        self.undecided: list[str] = []
        self.revisions = tuple(given["revisions"] or NEWEST)
        self.stop = trio.Event() if given["stop"] is None else given["stop"]
        self._began = trio.current_time()
        self._end = self._began + given["time"]
        self._longest = 0.0
        self._client = client
        self._given = given
        self._rules = rules = select(given["rules"], "client")
        self._deadline = given["deadline"]
        self._baseline = frozenset(given["baseline"])
        self._occasions = dict.fromkeys((rule.id for rule in rules), 0)
        self._troubles: dict[str, int] = {}
        self._generating = 0.0
        self._info = ""

    @property
    def seconds(self) -> float:
        """How long the check has been running, in seconds."""
        return trio.current_time() - self._began

    def scripts(self, revision: str) -> Iterator[Script]:
        """Yield an endless series of scripts for servers in a revision; the first server behaves plainly."""
        seed = self._given["seed"]
        if self._given["protected"]:
            yield from protected_scripts(seed, revision)
        # The first script is plain, so that a command that can't connect at all is not confused with a client that
        # rejects an odd server: other scripts may make the server respond with a version that does not exist.
        yield attrs.evolve(draws(scripts(revision, max_turns=0), 1, seed=seed)[0], answers=revision)
        for bulk in itertools.count():
            began = clock.perf_counter()
            # The factor keeps seeds apart: with a plain sum, the second bulk of one seed would equal the first bulk of
            # the next seed.
            drawn = draws(scripts(revision), BULK, seed=seed * 1_000_003 + bulk)
            self._generating += clock.perf_counter() - began
            yield from drawn

    async def example(self, number: int, script: Script) -> None:
        """Run the client against a server that follows a script, and judge their traffic."""
        run = await self._play(script)
        if run.cut:
            # The example is not judged, because the client would be blamed for the check's lack of time. If an earlier
            # example took as long, the client may well be healthy, and nothing is reported.
            if not self.stop.is_set() and run.seconds > self._longest:
                self.undecided.append(
                    f"the client was still running {run.seconds:.1f} seconds into an example when the time of the "
                    "check was up"
                )
            return
        self.examples += 1
        self._longest = max(self._longest, run.seconds)
        self.hung += not run.ended
        # A client that fails in a trap does what it should.
        if run.trouble and not (run.ended and script.protection is not None and script.protection.is_trap):
            self._troubles[run.trouble] = self._troubles.get(run.trouble, 0) + 1
        # A client that does not connect is an error: a report in which no rule had an occasion has status 0 and would
        # look like a success.
        if number == 0 and not run.events:
            raise TransportError(f"the client did not connect: {run.trouble or 'it ended without an error'}")
        history = History(run.events)
        self.requests += sum(len(connection.requests) for connection in history)
        self._info = self._info or _software(history)
        found: dict[str, Verdict] = {}
        for rule, verdict in judge(history, self._rules):
            self._occasions[rule.id] += 1
            if verdict.problem is not None:
                # The first verdict counts: it is nearest to the cause, and later ones are often its consequences.
                found.setdefault(rule.id, verdict)
        # Without this error, a client that can't sign in at all would seem to keep most rules. If it breaks one, that
        # may be why.
        if number == 0 and self._given["protected"] and not found and not any(e.kind == "request" for e in run.events):
            raise TransportError(f"the client did not sign in: {_last_step(run)}")
        for rule in self._rules:
            if rule.id in found and rule.id not in self.failures:
                self.failures[rule.id] = await self._shrink(rule, script, run, found[rule.id], number)

    # --- one example --------------------------------------------------------------------------------------------------

    async def _play(self, script: Script) -> _Run:
        most = MOST_STEPS if self._given["protected"] else MOST_EVENTS
        tape = Tape(most)
        # If the client uses up the time for an example, the events until then are still judged.
        run = _Run(tape.events)
        began = trio.current_time()
        allowed = self._given["patience"]
        patience = min(allowed, self._end + OVERTIME - began)
        with trio.move_on_after(patience) as scope:

            async def listen() -> None:
                await self.stop.wait()
                run.cut = True
                scope.cancel("the check was stopped")

            async def count() -> None:
                await tape.until(lambda: tape.is_full, math.inf)
                scope.cancel("the client sent too many messages")

            async with background_nursery() as nursery:
                nursery.start_soon(listen)
                nursery.start_soon(count)
                if isinstance(self._client, StreamClient):
                    await self._connect(self._client, script, tape, run)
                elif isinstance(self._client, _AtUrl):
                    await self._call(self._client, script, tape, run)
                else:
                    await self._start([*self._client], script, tape, run)
            run.ended = True
        # The ports differ from example to example, and the notes count what is the same.
        run.trouble = PORTS.sub("127.0.0.1", run.trouble)
        run.seconds = trio.current_time() - began
        if run.ended:
            run.cut = False  # the client ended before a stop could cut it short
        elif tape.is_full:
            run.trouble = f"it sent more than {most} messages"
        else:
            run.cut = run.cut or patience < allowed
            run.trouble = f"it did not end within {allowed:g} seconds"
        return run

    async def _connect(self, client: StreamClient, script: Script, tape: Tape, run: _Run) -> None:
        numbers = itertools.count()
        # One server handles all connections: a session over HTTP may use many connections.
        http = HttpServing(script, tape, self._deadline)

        async with background_nursery() as nursery:

            async def connect() -> trio.abc.Stream:
                # Opening a connection must be a checkpoint, as it is on a network: otherwise a client that connects in
                # a loop could not be stopped when its time is up.
                await trio.lowlevel.checkpoint()
                ours, theirs = trio.testing.memory_stream_pair()
                if client.transport == "http":
                    nursery.start_soon(http.serve, ours)
                else:
                    # Each connection gets a server of its own: when messages are sent as lines, nothing ties two
                    # connections together.
                    number = next(numbers)
                    server = ScriptedServer(script, tape, number, self._deadline)
                    nursery.start_soon(partial(serve_lines, server, ours, tape, number=number, transport="memory"))
                return theirs

            try:
                await client.run(connect)
            # The exception is only noted, because a client may raise anything when its server fails.
            except Exception as exc:
                run.trouble = _innermost(exc)

    @contextlib.asynccontextmanager
    async def _served(self, script: Script, tape: Tape) -> AsyncIterator[str]:
        """Serve a server on this computer, and yield its URL."""
        # The server listens on the loopback interface only, as the specification recommends for local servers
        # (`basic/transports`, Security Warning). The URL has the address and not the name `localhost`, which may
        # resolve to ::1 first. The server listens before the client starts, so a client that connects at once finds it.
        async with contextlib.AsyncExitStack() as stack:
            listeners: list[trio.SocketListener] = []
            # With a protection, the authorization server and a stranger have origins of their own.
            for _ in range(1 if script.protection is None else 3):
                listeners += await trio.open_tcp_listeners(0, host="127.0.0.1")
                stack.push_async_callback(listeners[-1].aclose)
            origins = [f"http://127.0.0.1:{each.socket.getsockname()[1]}" for each in listeners]
            url = origins[0] + PATH
            gate = None
            if script.protection is not None:
                from trio_mcp.conformance.serving.gate import ScriptedGate

                gate = ScriptedGate(script.protection, tape, url, *origins[1:])
            serving = HttpServing(script, tape, self._deadline, HostGuard(LOOPBACK_HOSTS), gate)
            nursery = await stack.enter_async_context(background_nursery())
            await start(nursery, partial(trio.serve_listeners, serving.serve, listeners))
            yield url

    async def _call(self, client: _AtUrl, script: Script, tape: Tape, run: _Run) -> None:
        async with self._served(script, tape) as url:
            try:
                await client.run(url)
            # The exception is only noted, because a client may raise anything when its server fails.
            except Exception as exc:
                run.trouble = _innermost(exc)

    async def _start(self, command: list[str], script: Script, tape: Tape, run: _Run) -> None:
        errors = bytearray()
        async with self._served(script, tape) as url, background_nursery() as nursery:
            # Unlike a server, the client gets the whole environment: it is the user's own program, and runs as if it
            # were started from the shell.
            program = StdioServerParameters(command[0], [*command[1:], url], env=dict(os.environ))
            process = await start_process(program)
            async with closing(partial(process.end, GRACE)):
                # A client that reads its standard input would otherwise wait for more input until its time is up.
                await process.stdin.aclose()
                # The standard output is read only because a full pipe would block the client.
                nursery.start_soon(_drain, process.stdout, bytearray())
                nursery.start_soon(_drain, process.stderr, errors)
                status = await process.wait()
        # A failing client is only noted, because it may well fail when its server does. The last line of its standard
        # error is quoted because, in a traceback, that line is the exception.
        if status:
            last = errors.decode("utf-8", "replace").strip().splitlines()
            run.trouble = f"it exited with status {status}" + (f": {last[-1]}" if last else "")

    # --- the smallest exchange ----------------------------------------------------------------------------------------

    async def _shrink(self, rule: Rule, script: Script, run: _Run, verdict: Verdict, number: int) -> Failure:
        events, runs, stop = run.events, 0, self.stop
        known = rule.id in self._baseline
        # Shrinking also stops when the time of the check is up. A known failure is not shrunk: the baseline gives its
        # reason.
        until = -math.inf if known else min(self._end, trio.current_time() + SHRINKING_TIME)
        simplest = script
        # Each simpler script has simpler ones in turn, so after a success the search restarts from that script instead
        # of continuing with the old list.
        candidates = iter(simplest.simpler())
        while (candidate := next(candidates, None)) is not None:
            if runs >= SHRINKING or stop.is_set() or trio.current_time() > until:
                break
            runs += 1
            tried = (await self._play(candidate)).events
            if (found := first_broken(rule, tried)) is not None:
                simplest, events, verdict, candidates = candidate, tried, found, iter(candidate.simpler())
        # The simplest script is run again, because a client may be flaky: the report says how often the script
        # reproduces the fault.
        seen = again = 0
        for _ in range(0 if known else REPEATS):
            if stop.is_set() or trio.current_time() > self._end:
                break
            tried_again = await self._play(simplest)
            if not tried_again.cut:
                again += 1
                seen += first_broken(rule, tried_again.events) is not None
        assert verdict.problem is not None
        transcript = essential(rule, events, verdict)
        # A verdict on a message of a batch refers to an event that `History` has made and that no transcript contains,
        # so the last event is marked instead.
        at = next((at for at, event in enumerate(transcript) if event is verdict.event), len(transcript) - 1)
        return Failure(
            verdict.problem,
            tuple(transcript),
            at,
            simplest,
            simplest.revision,
            seen,
            again,
            number,
        )

    # --- the report ---------------------------------------------------------------------------------------------------

    def report(self, ended: Ended) -> CheckReport:
        """Return the report on what the check has found."""
        outcomes = []
        for rule in self._rules:
            occasions, failure = self._occasions[rule.id], self.failures.get(rule.id)
            if failure is not None:
                outcomes.append(Outcome(rule, "broken", occasions, failure=failure, known=rule.id in self._baseline))
            elif occasions:
                outcomes.append(Outcome(rule, "held", occasions))
            # A rule that exists in none of the spoken revisions has a status of its own, because the user can have it
            # checked by asking for another revision.
            elif not set(rule.revisions) & set(self.revisions):
                outcomes.append(
                    Outcome(rule, "not checkable", reason="the client spoke no revision that has this rule")
                )
            elif rule.section.startswith("basic/authorization") and not self._given["protected"]:
                outcomes.append(Outcome(rule, "not exercised", reason="no server made the client sign in (protected)"))
            else:
                outcomes.append(Outcome(rule, "not exercised", reason="the client did nothing that this rule judges"))
        name = self._client.name if isinstance(self._client, (StreamClient, _AtUrl)) else " ".join(self._client)
        notes = tuple(f"in {count} of {self.examples} examples {what}" for what, count in self._troubles.items())
        return CheckReport(
            name,
            "client",
            self._client.transport if isinstance(self._client, StreamClient) else "http",
            self.revisions,
            self._info,
            self._given["seed"],
            self.examples,
            self.requests,
            self.seconds,
            self._generating,
            tuple(outcomes),
            notes,
            ended,
            wanted=self._given["examples"],
            undecided=tuple(self.undecided),
        )


async def _drain(stream: trio.abc.ReceiveStream, last: bytearray) -> None:
    """Read a stream to its end, so that its writer never blocks, and keep its last bytes in ``last``."""
    async for data in stream:
        last += data
        del last[:-LAST_WORDS]


def essential(rule: Rule, events: Sequence[Event], verdict: Verdict) -> list[Event]:
    """Return the events that a verdict depends on: with these alone, the same event breaks the rule in the same way.

    The kit can't make a client do less, as it can a server, but it can show less of what the client did.
    """
    # The events up to the verdict are tried first, since later ones seldom matter. If they do, as with a rule about a
    # response that never comes, the search starts with all events.
    place = next((at for at, event in enumerate(events) if event is verdict.event), len(events) - 1)
    kept = list(events[: place + 1])

    places = {id(event): place for place, event in enumerate(events)}

    def in_order(units: list[list[Event]]) -> list[Event]:
        # HTTP exchanges overlap, so the events of several exchanges must be sorted, and not merely concatenated.
        return sorted((event for unit in units for event in unit), key=lambda event: places[id(event)])

    def shows(tried: list[Event]) -> bool:
        found = first_broken(rule, tried)
        return found is not None and found.event is verdict.event and found.problem == verdict.problem

    if not shows(kept):
        kept = list(events)
        if not shows(kept):
            return kept
    # An HTTP exchange is kept whole: the rest of a response may explain why the client acted as it did.
    grouped: dict[tuple[int, int], list[Event]] = {}
    for place, event in enumerate(kept):
        key = (-1, place) if event.exchange is None else (event.connection, event.exchange)
        grouped.setdefault(key, []).append(event)
    units = list(grouped.values())
    size = len(units) // 2
    # Large pieces are tried first: most of a long transcript has nothing to do with the fault.
    while size:
        at = 0
        while at < len(units):
            tried = in_order(units[:at] + units[at + size :])
            if any(verdict.event in unit for unit in units[at : at + size]) or not shows(tried):
                at += size
            else:
                del units[at : at + size]
        size //= 2
    return in_order(units)


def _software(history: History) -> str:
    for _, asked in history.requests():
        # A client of the legacy era names itself once, in `initialize`; one of the modern era does so in the metadata
        # of each request.
        found: Any = asked.params.get("clientInfo") or asked.meta.get("io.modelcontextprotocol/clientInfo")
        if isinstance(found, dict):
            return f"{found.get('name')} {found.get('version')}"
    return ""


def _last_step(run: _Run) -> str:
    """Return what a client did last that was meant to sign it in, and how it ended."""
    steps = [event.facts for event in run.events if event.facts.get("what") == "login"]
    done = "it sent nothing"
    if steps:
        done = f"its last request was to {steps[-1]['to']}, and got status {steps[-1]['status']}"
    return f"{done}; {run.trouble or 'then it ended without an error'}"


def _innermost(exc: BaseException) -> str:
    # Every Trio nursery wraps exceptions in a group, so a group with a single exception says nothing by itself.
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return f"it raised {type(exc).__name__}: {str(exc).splitlines()[0] if str(exc) else ''}"
