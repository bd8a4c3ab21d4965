"""The server's tools. Each call is in the ledger, before it begins and after it has ended, with its process."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sqlite3
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import trio
from pydantic import BaseModel

from tests.soak.record import Ledger
from tests.soak.tools import digest
from trio_mcp import Context, InputOptions, Principal, RequestTimeout, Server, ToolError, TransportError
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
from trio_mcp.server.context import ServedContext
from trio_mcp.session.session import BaseSession
from trio_mcp.stores import KeyRing, StoreError, Stores, UserStateOptions

LEASE = 3.0
"""Seconds after which a silent process is killed while others can't write to the file, and a lost task is claimed."""

MEMBER_LEASE = 9.0
"""Seconds after which what a silent process ran for sessions is ended: longer than the file is locked."""

SILENCE = 6.0
"""Seconds after which a silent process is killed in any case."""

START = 20.0
"""Seconds after which a process that does not serve is killed: one may be stopped as it starts."""

TIMEOUT = 2.0
"""Seconds for which an operation waits for the file, or for the engine."""

GRACE = 3.0
MOST_EXTRA = 5.0
"""Seconds beyond its grace after which a process that is to end is killed; the library's own figure."""

DELAY = 3.0
"""Seconds after which a new key signs."""

MAX_STATE = 4 * 1024 * 1024
"""Bytes that the updates of a user may take: their ids are kept for the whole run."""

ASKING = 25.0
"""Seconds for which a question in a session waits for its answer: some clients lose the stream before they get it."""

LIST = -1
"""The number that stands for the list of resources, where others stand for topics."""

STEPS = 4
"""How many steps a task has, and how many `steps` reports."""


class Answer(BaseModel):
    text: str


class Written(BaseModel):
    """The state of a user: the updates that have been made."""

    updates: list[str] = []


def topic(number: int) -> str:
    return f"chaos://topic/{number}"


def make(folder: Path, stores: Stores) -> Server:
    """Make the server, which is the same in each process."""
    ledger = Ledger(folder / "ledger")
    server = Server(
        "chaos",
        stores=stores,
        principal=lambda ctx: Principal(ctx.headers.get("x-user", "driver"), issuer="https://chaos.example"),
        user_state=UserStateOptions(trust_principal=True, max_size=MAX_STATE),
        input=InputOptions(key=KeyRing.file(folder / "chaos.keys")),
        extensions=[Tasks(TaskOptions(lease=LEASE))],
        middleware=[lambda ctx, call_next: _note(ledger, ctx, call_next)],
    )
    _add_tools(server)
    _add_tools_of_sessions(server, ledger)
    _add_tools_with_stores(server, ledger, folder / "chaos.db")
    return server


async def _note(ledger: Ledger, ctx: Context, call_next: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Write down that a call has begun, and how it has ended. Each round of a call is a request of its own."""
    call = (ctx.params.get("arguments") or {}).get("call") if ctx.method == "tools/call" else None
    if call is None:
        return await call_next()
    name = f"{call}#{zlib.crc32(str(ctx.params.get('requestState')).encode())}"
    ledger.note(name, f"began {os.getpid()} {time.monotonic():.3f}")
    how = "failed"
    try:
        result = await call_next()
        how = "ended"
        return result
    except trio.Cancelled:
        how = "cancelled"
        raise
    finally:
        ledger.note(name, f"{how} {os.getpid()} {time.monotonic():.3f}")


def _add_tools(server: Server) -> None:
    @server.tool
    async def look(call: str, seconds: float) -> str:
        await trio.sleep(seconds)
        return digest(call, 0)

    @server.tool
    async def steps(call: str, seconds: float, ctx: Context) -> str:
        for step in range(1, STEPS + 1):
            await ctx.report_progress(step, STEPS)
            await trio.sleep(seconds / STEPS)
        return digest(call, 0)

    @server.tool
    async def ask(call: str, ctx: Context) -> str:
        answer = await ctx.elicit("Which?", Answer)
        return f"{answer.data.text if answer.data else answer.action} {digest(call, 0)}"


def _add_tools_of_sessions(server: Server, ledger: Ledger) -> None:
    """Add the tools that ask: each question has a token, which its answer must repeat."""

    def asked(call: str) -> str:
        token = secrets.token_hex(4)
        ledger.note(f"{call}?{token}", f"asked {os.getpid()} {time.monotonic():.3f}")
        return token

    def answered(call: str, token: str) -> str:
        ledger.note(f"{call}?{token}", f"answered {os.getpid()} {time.monotonic():.3f}")
        return f"{token} {digest(call, 0)}"

    @contextlib.contextmanager
    def unanswered() -> Iterator[None]:
        try:
            yield
        except (RequestTimeout, TransportError) as exc:  # the second one if the question could not be stored
            raise ToolError(f"unanswered: {exc}") from None

    @server.tool
    async def quiz(call: str, ctx: Context) -> str:
        """Ask on the stream of the call, after some progress."""
        await ctx.report_progress(1, 2)
        with unanswered():
            answer = await ctx.elicit(asked(call), Answer, timeout=ASKING)
        await ctx.report_progress(2, 2)
        return answered(call, answer.data.text if answer.data else answer.action)

    @server.tool
    async def knock(call: str, ctx: Context) -> str:
        """Send a log message and a question on the stream of messages that belong to no request."""
        assert isinstance(ctx, ServedContext)
        assert isinstance(ctx.connection, BaseSession)
        token = asked(call)
        await ctx.connection.send_notification("notifications/message", {"level": "warning", "data": call})
        content = {"role": "user", "content": {"type": "text", "text": token}}
        params = {"messages": [content], "maxTokens": 1}
        with unanswered():
            reply = await ctx.connection.send_request("sampling/createMessage", params, timeout=ASKING)
        return answered(call, reply["content"]["text"])


def _add_tools_with_stores(server: Server, ledger: Ledger, file: Path) -> None:
    @server.tool
    async def put(call: str, ctx: Context) -> str:
        def more(found: Written) -> Written:
            found.updates.append(call)
            return found

        try:
            await ctx.update_user_state(Written, more)
        except StoreError as exc:
            raise ToolError(f"store: {type(exc).__name__}: {exc}") from None
        return digest(call, 0)

    @server.tool
    async def written(ctx: Context) -> list[str]:
        return (await ctx.user_state(Written)).updates

    @server.tool(task=TaskPolicy(after=0, poll=0.5, on_loss="rerun", max_takeovers=1000))
    async def work(call: str, seconds: float, ctx: Context) -> str:
        async def run(step: int) -> None:
            ledger.note(f"{call}:{step}", f"ran {os.getpid()} {time.monotonic():.3f}")
            await trio.sleep(seconds / STEPS)

        for step in range(STEPS):
            await ctx.once(f"step-{step}", run, step)
            ledger.note(f"{call}:{step}", f"kept {os.getpid()} {time.monotonic():.3f}")
        return digest(call, 0)

    @server.tool
    async def touch(number: int) -> None:
        if number == LIST:
            server.notify_resources_changed()
        else:
            server.notify_resource_updated(topic(number))
        ledger.note(str(number), f"touched {os.getpid()} {time.monotonic():.3f}")

    @server.tool
    async def hold() -> None:
        """Stop this process inside a transaction."""
        connection = sqlite3.connect(file, timeout=0, isolation_level=None)
        while True:
            # A wait inside SQLite would make the process look dead while the file is locked.
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError:
                await trio.sleep(0.05)
        ledger.note("file", f"held {os.getpid()} {time.monotonic():.3f}")
        os.kill(os.getpid(), signal.SIGSTOP)

    @server.resource("chaos://topic/{number}")
    async def resource(number: str) -> str:
        return number
