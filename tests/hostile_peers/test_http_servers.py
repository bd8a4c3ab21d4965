"""Our client against hostile servers over HTTP: each exchange ends, and so does every chain of them."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio
import trio.testing

from tests.hostile_peers.habits import HABITS, LEGACY, MODERN, Act, Hostile, served_well
from tests.hostile_peers.test_servers import ANSWERED, use
from tests.http_peer import Asked, Handler, event, peer, plain
from trio_mcp import HttpServerParameters

pytestmark = pytest.mark.legacy

OFTEN = 100
"""HTTP requests of a client in a test: it makes three calls, and waits for two minutes and a half. It may try some of
them several times, and look after a stream at times."""


THREE_A_SECOND = 450
"""The same, if a stream with the server's own messages ends, or breaks, as soon as it has brought some: it is opened
again, as `retry` and the library's own pauses have it."""


def well(mode: str, *, session: bool = True) -> Handler:
    """Return a handler that responds as a good server does."""

    async def handle(asked: Asked) -> None:
        if asked.body is None:
            await asked.status(405)
        elif texts := served_well(asked.body, mode):
            fields = {"Mcp_Session_Id": "s1"} if asked.rpc == "initialize" and session else {}
            status = 400 if b"error" in texts[0] and mode == LEGACY else 200
            await asked.status(status, texts[0], **fields)
        else:
            await asked.status(202)

    return handle


def telling(habit: str, then: str) -> Handler:
    """Return a handler that responds with a stream of what a habit says, which ends, breaks, or goes on in silence."""
    hostile = Hostile(HABITS[habit])

    async def handle(asked: Asked) -> None:
        moves = hostile.moves(json.dumps(asked.body or {}).encode())
        texts = [move for move in moves if isinstance(move, bytes)]
        if Act.CLOSE in moves:
            await asked.abort()
        elif Act.HALF in moves:
            await asked.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
            await asked.gone()
        else:
            await asked.events(*(event(text, "1" if then == "abort" else None) for text in texts), then=then)

    return handle


async def endless_events(asked: Asked) -> None:
    """Send an event each second, none of which is a response."""
    await asked.begin_events()
    while True:
        await asked.chunk(event(b'{"jsonrpc":"2.0","method":"acme/what"}'))
        await trio.sleep(1)


async def half_a_body(asked: Asked) -> None:
    await asked.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"jsonrpc"')
    await asked.gone()


async def to_itself(asked: Asked) -> None:
    await asked.status(307, b"", Location=asked.path)


async def comes_back(asked: Asked) -> None:
    """End each stream at once, and ask the client to come back without a pause."""
    await asked.events(b"id: 7\nretry: 0\ndata:\n\n")


async def empties(asked: Asked) -> None:
    await asked.events()


async def interim(asked: Asked) -> None:
    await asked.raw(b"HTTP/1.1 103 Early\r\n\r\n" * 1000)
    await asked.gone()


async def silent(asked: Asked) -> None:
    await asked.gone()


ANSWERS: dict[str, Handler] = {
    "says nothing": silent,
    "sends half a head": telling("sends half a message", "end_events"),
    "sends half a body": half_a_body,
    "closes": telling("closes", "end_events"),
    "sends events without an end": endless_events,
    "sends empty streams": empties,
    "redirects to itself": to_itself,
    "has it come back at once": comes_back,
    "sends informational responses": interim,
    "accepts everything": plain(202),
    "sends a page": plain(200, b"<html>", content_type="text/html"),
    "sends no JSON": plain(200, b"what?"),
    "sends JSON of null": plain(200, b"null"),
    "sends an error of null": plain(200, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}'),
    **{f"answers with {status}": plain(status, b"what?") for status in (204, 400, 401, 403, 404, 405, 409, 429, 500)},
    "is busy": plain(503, b"", Retry_After="0"),
}


async def check(answer: Handler, steps: set[str], mode: str) -> None:
    """Run a client against a server that responds well but to some messages, and count what the client asks."""
    good = well(LEGACY if mode == "legacy" else MODERN)

    async def handle(asked: Asked) -> None:
        await (answer if asked.rpc in steps or not steps else good)(asked)

    async with peer() as server:
        server.otherwise = handle
        busy = await use(server.url, mode)
    assert len(server.asked) <= (THREE_A_SECOND if "GET" in steps else OFTEN)
    # An exchange takes some 25 steps of both sides; the server that sends events does so each second.
    assert busy <= 30 * len(server.asked) + 1000


STEPS: dict[str, set[str]] = {
    "everything": set(),
    "its opening": {"initialize", "server/discover"},
    "notifications": {"notifications/initialized", "notifications/cancelled"},
    "calls": {"tools/call", "tools/list", "ping"},
    "streams": {"GET"},
    "the end": {"DELETE"},
}
MODES = pytest.mark.parametrize("mode", ["auto", "legacy", MODERN])


@MODES
@pytest.mark.parametrize(
    "steps", [each if each in ("calls", "streams") else pytest.param(each, marks=pytest.mark.again) for each in STEPS]
)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_server_that(answer: str, steps: str, mode: str, autojump_clock: trio.testing.MockClock) -> None:
    await check(ANSWERS[answer], STEPS[steps], mode)


@pytest.mark.again
@MODES
@pytest.mark.parametrize("steps", ["its opening", "calls", "streams"])
@pytest.mark.parametrize("then", ["end_events", "abort", "gone"])
@pytest.mark.parametrize("habit", HABITS)
async def test_a_server_whose_streams(
    habit: str, then: str, steps: str, mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    """They say what fits nothing, and then end, break off as if they could be resumed, or go on in silence."""
    await check(telling(habit, then), STEPS[steps], mode)


@pytest.mark.parametrize(
    "steps",
    [
        *(0, pytest.param(2, marks=pytest.mark.again)),
        *(pytest.param(steps, marks=pytest.mark.long) for steps in (1, 3, 4)),
    ],
)
@pytest.mark.parametrize("habit", HABITS)
async def test_a_server_of_http_and_sse_that(habit: str, steps: int, autojump_clock: trio.testing.MockClock) -> None:
    """All it says comes on one stream, in response to nothing or to POSTs."""
    hostile = Hostile(HABITS[habit], steps, partial(served_well, mode=LEGACY))
    streams: list[Asked] = []
    turn = trio.Lock()  # two POSTs may come at once

    async def handle(asked: Asked) -> None:
        if asked.method == "GET":
            streams.append(asked)
            await asked.begin_events()
            await asked.chunk(b"event: endpoint\ndata: /messages\n\n")
            await asked.gone()
            return
        await asked.status(202)
        async with turn:
            for move in hostile.moves(json.dumps(asked.body).encode()):
                if move is Act.CLOSE:
                    await streams[-1].abort()
                else:
                    await streams[-1].chunk(b"data: {" if move is Act.HALF else event(move))

    async with peer() as server:
        server.otherwise = handle
        busy = await use(HttpServerParameters(server.url, kind="sse"), "auto")
    assert len(server.asked) <= OFTEN + (hostile.sent if habit in ANSWERED else 0)
    assert busy <= 100
