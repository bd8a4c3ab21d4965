"""``trio-mcp demo``: take the same steps over each transport, and show what happened and how long each step took."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from functools import partial

import trio

from trio_mcp._nursery import background_nursery, start
from trio_mcp._version import __version__
from trio_mcp.auth.client.oauth import OAuth
from trio_mcp.auth.server.claims import Claims, InvalidToken
from trio_mcp.auth.testing.protecting import protected
from trio_mcp.auth.testing.server import AuthorizationServer
from trio_mcp.cli.demo_server import make_server
from trio_mcp.client.client import Client
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import Target
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["demo", "run"]

HEADINGS = ("transport", "step", "what happened", "time")
# The number of calls is arbitrary: enough for a steady figure, and few enough to take only moments on each transport.
CALLS = 500
COUNT_TO = 5
IMPATIENCE = "the demo has seen enough"
GRANTS = ("authorization_code", "refresh_token")
STREAM_CLOSED = "the client closed the response stream"  # the reason that a server gives for a cancellation over HTTP


class _Report:
    """Collects the table of what happened, and the list of what went wrong."""

    def __init__(self) -> None:
        self.rows = [HEADINGS]
        # Problems are collected rather than raised: the table should still show what works over other transports.
        self.problems: list[str] = []

    @contextlib.contextmanager
    def step(self, transport: str, name: str) -> Iterator[list[str]]:
        """Time one step; the block gets a list, to which it appends a text about what happened."""
        print(f"  {transport}: {name} …", file=sys.stderr, flush=True)
        happened: list[str] = []
        started = trio.current_time()
        yield happened
        self.rows.append((transport, name, "".join(happened), f"{(trio.current_time() - started) * 1000:.1f} ms"))

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = []
        for *texts, time in self.rows:
            cells = [text.ljust(width) for text, width in zip(texts, widths, strict=False)]
            lines.append("  ".join([*cells, time.rjust(widths[-1])]))
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    return trio.run(demo)


async def demo() -> int:
    """Run the demo and print its table.

    Returns:
        The exit status: 0 if everything went as it should, else 1.
    """
    print(f"trio_mcp {__version__}: one server, over each transport", file=sys.stderr)
    report = _Report()
    async with background_nursery() as nursery:
        # Each transport gets a server of its own, because a server records the cancelled calls of all its clients.
        targets: dict[str, Target] = {
            "memory": make_server(),
            "stdio": StdioServerParameters(sys.executable, ["-m", "trio_mcp.cli.demo_server"]),
            # Port 0 picks a free port; `start` returns the URL.
            "http": await start(nursery, partial(make_server().serve_http, port=0)),
            "sse": HttpServerParameters(await start(nursery, partial(make_server().serve_sse, port=0)), kind="sse"),
            "websocket": await start(nursery, partial(make_server().serve_websocket, port=0)),
            "tcp": await start(nursery, partial(make_server().serve_tcp, port=0)),
        }
        for name, target in targets.items():
            await _try(report, name, target)
        await _fail_over(report, nursery)
        await _sign_in(report)
    print(report)
    for problem in report.problems:
        print(f"trio-mcp demo: {problem}", file=sys.stderr)
    return 1 if report.problems else 0


async def _fail_over(report: _Report, nursery: trio.Nursery) -> None:
    """Connect to a server that has two endpoints, and shut down the one that the client prefers."""
    end = trio.Event()
    better = await start(nursery, partial(make_server().serve_tcp, port=0, shutdown=end))
    other = await start(nursery, partial(make_server().serve_websocket, port=0))
    switched = trio.Event()
    ways = FailoverParameters([better, other], on_switch=lambda _: switched.set())
    async with Client(ways) as client:
        for step_name, reached in (("call over tcp", "tcp"), ("tcp ends, call again", "ws")):
            with report.step("failover", step_name) as step:
                total = (await client.call_tool("add", {"a": 2, "b": 3})).data
                carrier = str(client.transport.carrier).partition(":")[0]
                if (total, carrier) != (5, reached):
                    report.problems.append(f"failover: add gave {total!r} over {carrier} instead of 5 over {reached}")
                step.append(f"add(2, 3) = {total}, over {carrier}")
            end.set()
            await switched.wait()


async def _sign_in(report: _Report) -> None:
    """Sign in to a server, call a tool, let the token expire, and call it again."""
    # The tokens are opaque, because JWTs would need the extra "auth".
    authority = AuthorizationServer(tokens="opaque")

    async def verify(token: str) -> Claims:
        known = authority.claims_of(token)
        if known is None:
            raise InvalidToken("it has expired")
        return Claims(known["iss"], known["sub"], known["aud"], known["exp"], client_id=known["client_id"])

    async with protected(make_server(), authority, verifier=verify, dpop="off", remember=0) as url:
        with report.step("login", "connect") as step:
            # The person is simulated, so no browser is opened.
            stack = contextlib.AsyncExitStack()
            client = await stack.enter_async_context(Client(url, auth=OAuth(show=authority.show)))
            step.append(f"a person has signed in at {authority.issuer}")
        async with stack:
            for name in ("call a tool", "expire, call again"):
                with report.step("login", name) as step:
                    total = (await client.call_tool("add", {"a": 2, "b": 3})).data
                    logins, renewals = (authority.count("token", grant_type=each) for each in GRANTS)
                    step.append(f"add(2, 3) = {total}, tokens renewed: {renewals}")
                authority.issued.expire()
            if (total, logins, renewals) != (5, 1, 1):
                report.problems.append(f"login: add gave {total!r} after {logins} logins and {renewals} renewals")


async def _try(report: _Report, transport: str, target: Target) -> None:
    """Run the demo's steps with one server."""

    def expect(what: str, got: object, wanted: object) -> None:
        if got != wanted:
            report.problems.append(f"{transport}: {what} gave {got!r} instead of {wanted!r}")

    async with contextlib.AsyncExitStack() as stack:
        with report.step(transport, "connect") as step:
            client = await stack.enter_async_context(Client(target))
            name = client.server_info.name if client.server_info else "a server without a name"
            step.append(f"{name}, revision {client.protocol_version}")
        with report.step(transport, "list tools") as step:
            step.append(", ".join([tool.name async for tool in client.iter_tools()]))
        with report.step(transport, "call a tool") as step:
            total = (await client.call_tool("add", {"a": 2, "b": 3})).data
            expect("add", total, 5)
            step.append(f"add(2, 3) = {total}")
        with report.step(transport, f"{CALLS} calls in a row") as step:
            started = trio.current_time()
            for number in range(CALLS):
                expect("add", (await client.call_tool("add", {"a": number, "b": 1})).data, number + 1)
            step.append(f"{CALLS / (trio.current_time() - started):,.0f} calls per second")
        with report.step(transport, "progress") as step:
            seen: list[ProgressNotificationParams] = []
            counted = (await client.call_tool("count", {"to": COUNT_TO}, on_progress=seen.append)).data
            expect("progress", [event.progress for event in seen], list(range(1, COUNT_TO + 1)))
            step.append(f"{len(seen)} notifications, then the result {counted}")
        with report.step(transport, "cancel a call") as step:
            with trio.CancelScope() as scope:
                # The first progress notification shows that the handler is running, so the call is cancelled midway.
                await client.call_tool("wait", on_progress=lambda _: scope.cancel(IMPATIENCE))
            reasons = (await client.call_tool("why_cancelled")).data
            # Over HTTP a modern client cancels by closing the response stream, which can't convey a reason.
            expect("the reason of the cancellation", reasons, [STREAM_CLOSED if transport == "http" else IMPATIENCE])
            step.append(f"the server's task was cancelled: {', '.join(reasons)}")
        with report.step(transport, "close") as step:
            # The client is closed here, so that the table shows how long closing takes; the stack closes the client
            # again, which does nothing.
            await client.aclose()
            step.append("nothing left running")
