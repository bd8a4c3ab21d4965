"""What a server prints about the probe for its era: it is dropped where it says nothing, and shown where it may."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.waiting import eventually
from trio_mcp import CallOptions, Client, SessionOptions, StdioServerParameters, TrioMcpError
from trio_mcp.stdio.probing import MAX_HELD

SERVER = """
import array, fcntl, json, pathlib, sys, termios, time

def say(text):
    print(text, file=sys.stderr, flush=True)

def send(request, **outcome):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)

kind = sys.argv[1]
say("starting")
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    if method == "server/discover" and kind != "quiet":
        say("2 validation errors for Request\\n  got 'server/discover'\\n  for further information visit https://example.com")
        if kind == "long":
            say("x" * 1000 + "\\n" + "y" * int(sys.argv[2]))
        if kind == "modern":
            declared = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}
            send(message, result={"resultType": "complete", **declared})
        elif kind == "ignores":
            pass
        elif kind == "hangs":
            unread = array.array("i", [1])
            while unread[0]:
                fcntl.ioctl(2, termios.FIONREAD, unread)
                time.sleep(0.01)
            pathlib.Path(sys.argv[2]).touch()
        elif kind == "dies":
            sys.exit("dead")
        else:
            send(message, error={"code": -32602, "message": "Invalid request parameters"})
    elif method == "initialize":
        say("initializing")
        if kind == "refuses":
            send(message, error={"code": -32000, "message": "no"})
        else:
            info = {"name": "x", "version": "1"}
            send(message, result={"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info})
    elif "id" in message:
        say("pinged by server/discover")
        send(message, result={})
"""
ABOUT = "2 validation errors for Request,   got 'server/discover',   for further information visit https://example.com"


async def printed(kind: str, mode: str = "auto") -> list[str]:
    """Return what is shown of a server's standard error, up to a ping if it can be reached."""
    lines: list[str] = []
    target = StdioServerParameters(sys.executable, ["-S", "-c", SERVER, kind, str(MAX_HELD)], stderr=lines.append)
    # The one limit that is reached is that of the probe which a server ignores.
    options = SessionOptions(calls=CallOptions(probe_timeout=1))
    try:
        async with Client(target, mode=mode, options=options) as client:
            await client.ping()
    except TrioMcpError:
        pass
    return lines


@pytest.mark.parametrize("kind", ["answers", "quiet"])
async def test_what_is_printed_between_the_probe_and_its_answer_is_dropped(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """But neither what came before it, unless it was read together with it, nor what came after. The log has it."""
    caplog.set_level(logging.DEBUG, logger="trio_mcp")
    shown = ", ".join(await printed(kind))
    assert shown.removeprefix("starting, ") == "initializing, pinged by server/discover"
    assert ("for further information" in caplog.text) == (kind == "answers")


@pytest.mark.parametrize(
    ("kind", "mode", "after"),
    [
        ("refuses", "auto", "initializing"),
        ("ignores", "auto", "initializing, pinged by server/discover"),
        ("dies", "auto", "dead"),
        ("modern", "auto", ABOUT),  # its ping is the same request
        ("answers", "2026-07-28", ""),  # which does not probe, but fails
    ],
)
async def test_all_is_shown_unless_the_handshake_follows_an_answer(kind: str, mode: str, after: str) -> None:
    assert ", ".join(await printed(kind, mode)) == ", ".join(filter(None, ["starting", ABOUT, after]))


async def test_what_is_held_back_is_bounded() -> None:
    """A server that prints without an end is not kept waiting, and what it prints is shown."""
    lines = await printed("long")
    assert sum(map(len, lines)) > MAX_HELD
    assert (lines[:4], lines[-1]) == (["starting", *ABOUT.split(", ")], "pinged by server/discover")


@pytest.mark.parametrize("attempt", range(5))  # the order in which tasks are cancelled is random
async def test_a_client_that_is_cancelled_while_something_is_held_back_just_ends(attempt: int, tmp_path: Path) -> None:
    """The task that reads standard error may have ended before the one that waits for the answer."""
    read = tmp_path / "read"
    target = StdioServerParameters(sys.executable, ["-S", "-c", SERVER, "hangs", str(read)], stderr=lambda line: None)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def cancel() -> None:
            await eventually(read.exists)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        async with Client(target):
            pytest.fail("it has not answered")
    assert nursery.cancel_scope.cancelled_caught
