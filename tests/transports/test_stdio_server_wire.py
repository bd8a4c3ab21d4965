"""The server's standard streams: only messages on the wire, whatever runs in the process; garbage costs only itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer import HANDSHAKE, ProcessPeer, call, ndjson, process_peer, script
from tests.transports.support import NOISY, run

NOISES = ["print", "unflushed", "buffer", "original", "descriptor", "child", "shell", "inherited", "logging"]


@pytest.fixture(scope="module")
def server() -> Iterator[ProcessPeer]:
    """One server for all: each piece of noise and garbage leaves it as it was, and its output empty."""
    with process_peer(NOISY) as wire:
        yield wire
        wire.close_input()
        assert wire.exit() == 0
        assert wire.received == b""


def test_no_noise_reaches_the_wire(server: ProcessPeer) -> None:
    """Whatever prints, in this process or a child of it, finds standard error in place of standard output."""
    for number, how in enumerate(NOISES, 1):
        assert server.call("make_noise", how=how) == "done"
        if how != "unflushed":
            server.wait_for_error_text("NOISE\n" * number if how == "print" else "NOISE")
    assert server.errors.count(b"NOISE") >= len(NOISES) - 1


def test_tools_and_their_children_read_nothing_from_the_wire(server: ProcessPeer) -> None:
    """Standard input is empty for them: a tool that reads it must not swallow the next request."""
    for how in ("descriptor", "child", "file"):
        server.send(call("read", "read_input", how=how), call("next", "echo", value=how))
        answers = {answer["id"]: answer for answer in (server.receive(), server.receive())}
        assert answers["read"]["result"]["structuredContent"] == {"result": ""}
        assert answers["next"]["result"]["structuredContent"] == {"result": how}


@pytest.mark.parametrize(
    ("garbage", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', -32700, 7),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', -32602, 7),
        (b"[" * 100_000, -32700, None),
        *((answer, None, None) for answer in (b'{"id":9,"result":{}}', b'{"jsonrpc":"2.0","id":9,"result":')),
        *(
            (b'{"jsonrpc":"2.0","method":"notifications/%s","params":[]}' % name, None, None)
            for name in (b"x", b"progress")
        ),
    ],
)
def test_garbage_is_answered_if_possible_and_affects_nothing_else(
    garbage: bytes, code: int | None, request_id: int | None, server: ProcessPeer
) -> None:
    """JSON-RPC 2.0, section 5.1: an error response, with the id if it could be read; then the session goes on.

    Unexpected responses and malformed notifications are not answered: that could go on forever.
    """
    server.send(garbage + b"\n", call("next", "echo", value=1))
    answers = {answer.get("id"): answer for answer in [server.receive() for _ in range(1 if code is None else 2)]}
    assert answers.pop("next")["result"]["structuredContent"] == {"result": 1}
    assert {key: answer["error"]["code"] for key, answer in answers.items()} == (
        {} if code is None else {request_id: code}
    )


# Without a server: a size limit, and what the process prints around the block. Every request comes back as a result.
LINK = """
    print("before")
    import trio
    from trio_mcp import SessionMessage, stdio_server
    from trio_mcp.jsonrpc.messages import Malformed, Request, Response
    async def main():
        async with stdio_server(max_message_size=2000) as (read, write):
            print("within")
            async for item in read:
                match item.message:
                    case Request(id, _, params):
                        await write.send(SessionMessage(Response(id, params)))
                    case Malformed(_, said, id):
                        await write.send(SessionMessage(Response(id, {"said": said})))
    trio.run(main)
    print("after")
"""


def test_what_is_printed_before_in_and_after_the_block_and_what_is_too_long_stay_apart_from_the_wire() -> None:
    """A message over the limit is known by its id, wherever in the message that is; what follows is read as usual."""

    def request(request_id: int, text: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": request_id, "method": "m", "params": {"text": text}}

    id_last = {"jsonrpc": "2.0", "method": "m", "params": {"text": "x" * 100_000}, "id": 3}
    result = run(script(LINK), ndjson(request(1, "ü"), request(2, "x" * 1_000_000), id_last, request(4, "\u2028")))
    first, *lines, last = result.stdout.splitlines()
    assert (first, last, result.stderr, result.returncode) == (b"before", b"after", b"within\n", 0)
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, lines)}
    assert (answers[1], answers[4]) == ({"text": "ü"}, {"text": "\u2028"})
    assert all("max_message_size=2000" in answers[number]["said"] for number in (2, 3))


def test_requests_piped_in_one_go_are_all_answered_before_the_exit() -> None:
    """``printf ... | server``: the end of the input does not cut off what is quick; the last line needs no newline."""
    count = 300
    result = run(NOISY, ndjson(*HANDSHAKE, *[call(n, "echo", value=n) for n in range(1, count + 1)]).rstrip(b"\n"))
    answers = {answer["id"]: answer for answer in map(json.loads, result.stdout.splitlines())}
    assert set(answers) == set(range(count + 1))
    assert all(answers[n]["result"]["structuredContent"] == {"result": n} for n in range(1, count + 1))
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_large_answer_leaves_whole_before_the_exit() -> None:
    """More than any pipe holds, to a client that takes a moment before it reads."""
    size = 5_000_000
    with process_peer(NOISY) as wire:
        wire.send(call(1, "big", size=size))
        wire.close_input()
        answer = wire.receive()
        assert len(answer["result"]["structuredContent"]["result"]) == size
        assert wire.exit() == 0
