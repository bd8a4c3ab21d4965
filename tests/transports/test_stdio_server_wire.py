"""The server's standard streams: only messages on the wire, whatever runs in the process; garbage costs only itself."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from tests.peer import HANDSHAKE, call, ndjson, process_peer, script
from tests.transports.support import ECHO, NOISY, run

NOISES = ["print", "unflushed", "buffer", "original", "descriptor", "child", "shell", "inherited", "logging"]


def test_no_noise_reaches_the_wire() -> None:
    """Whatever prints, in this process or a child of it, finds standard error in place of standard output."""
    with process_peer(NOISY) as wire:
        for how in NOISES:
            assert wire.call("make_noise", how=how) == "done"
        wire.close_input()
        assert wire.exit() == 0
    assert wire.received == b""
    assert wire.errors.count(b"NOISE") >= len(NOISES)


def test_tools_and_their_children_read_nothing_from_the_wire() -> None:
    """Standard input is empty for them: a tool that reads it must not swallow the next request."""
    with process_peer(NOISY) as wire:
        for how in ("descriptor", "child", "file"):
            wire.send(call("read", "read_input", how=how), call("next", "echo", value=how))
            answers = {answer["id"]: answer for answer in (wire.receive(), wire.receive())}
            assert answers["read"]["result"]["structuredContent"] == {"result": ""}
            assert answers["next"]["result"]["structuredContent"] == {"result": how}


@pytest.mark.parametrize(
    ("garbage", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":', -32700, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', -32700, 7),
        (b"\xff\xfe\x00", -32700, None),
        (b"[]", -32600, None),
        (b"42", -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', -32602, 7),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"no/such/method"}', -32601, 7),
    ],
)
def test_garbage_is_answered_if_possible_and_affects_nothing_else(
    garbage: bytes, code: int, request_id: int | None, server: Any
) -> None:
    """JSON-RPC 2.0, section 5.1: an error response, with the id if it could be read; then the session goes on."""
    server.send(garbage + b"\n", call("next", "echo", value=1))
    answers = sorted((server.receive(), server.receive()), key=lambda answer: answer.get("id") == "next")
    assert (answers[0]["error"]["code"], answers[0].get("id")) == (code, request_id)
    assert answers[1]["result"]["structuredContent"] == {"result": 1}


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"   \t\r",
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":99,"error":{"code":1}}',
        b'{"jsonrpc":"2.0","id":99,"result":',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard-of"}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":[]}',
    ],
)
def test_messages_that_need_no_response_get_none(garbage: bytes, server: Any) -> None:
    """Unexpected responses and malformed notifications are not answered: that could go on forever."""
    server.send(garbage + b"\n", call("next", "echo", value=1))
    assert server.receive()["id"] == "next"


@pytest.fixture(scope="module")
def server() -> Any:
    """One server for all of them: each piece of garbage leaves it as it was."""
    with process_peer(NOISY) as wire:
        yield wire
        wire.close_input()
        assert wire.exit() == 0
        assert wire.received == b""


LIMITED = """
    import trio
    from trio_mcp import ServerSession, stdio_server
    from trio_mcp.eras.server_negotiation import ServerIdentity
    async def answer(params, context):
        return {"size": len(context.params["text"])}
    async def main():
        identity = ServerIdentity(
            info={"name": "limited", "version": "1"}, capabilities=lambda revision: {}, instructions=None,
            revisions=("2025-11-25",),
        )
        async with stdio_server(max_message_size=2000) as link, ServerSession(*link, identity) as session:
            session.add_request_handler("x/size", answer)
            await session.wait_closed()
    trio.run(main)
"""


def test_a_message_over_the_limit_is_refused_and_skipped() -> None:
    """It is refused under its own id, wherever in the message that is; what follows is read as usual."""

    def request(request_id: int, size: int) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": request_id, "method": "x/size", "params": {"text": "x" * size}}

    id_last = {"jsonrpc": "2.0", "method": "x/size", "params": {"text": "x" * 100_000}, "id": 3}
    with process_peer(script(LIMITED)) as wire:
        wire.send(request(1, 10), request(2, 1_000_000), id_last, request(4, 20))
        answers = {answer["id"]: answer for answer in (wire.receive() for _ in range(4))}
    assert [answers[n].get("result") for n in (1, 4)] == [{"size": 10}, {"size": 20}]
    for n in (2, 3):
        assert answers[n]["error"]["code"] == -32600
        assert "max_message_size=2000" in answers[n]["error"]["message"]


def test_requests_piped_in_one_go_are_all_answered_before_the_exit() -> None:
    """``printf ... | server``: the end of the input does not cut off what is quick."""
    count = 300
    result = run(NOISY, ndjson(*HANDSHAKE, *[call(n, "echo", value=n) for n in range(1, count + 1)]))
    answers = {answer["id"]: answer for answer in map(json.loads, result.stdout.splitlines())}
    assert set(answers) == set(range(count + 1))
    assert all(answers[n]["result"]["structuredContent"] == {"result": n} for n in range(1, count + 1))
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_last_line_without_newline_is_answered() -> None:
    result = run(NOISY, ndjson(*HANDSHAKE, call(1, "echo", value=1)).rstrip(b"\n"))
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [0, 1]


def test_a_large_answer_leaves_whole_before_the_exit() -> None:
    """More than any pipe holds, to a client that takes a moment before it reads."""
    size = 5_000_000
    with process_peer(NOISY) as wire:
        wire.send(call(1, "big", size=size))
        wire.close_input()
        wire.process.poll()
        answer = wire.receive()
        assert len(answer["result"]["structuredContent"]["result"]) == size
        assert wire.exit() == 0


def test_a_client_that_reads_slowly_gets_all_of_the_last_answer() -> None:
    """The end of the input leaves time for as long as the client goes on reading."""
    with process_peer(NOISY) as wire:
        wire.send(call(1, "big", size=2_000_000))
        wire.close_input()
        parts = []
        while data := os.read(wire.process.stdout.fileno(), 300_000):  # type: ignore[union-attr]
            parts.append(data)
            time.sleep(0.05)
    assert len(json.loads(b"".join(parts))["result"]["structuredContent"]["result"]) == 2_000_000


def test_without_a_session_messages_pass_as_they_are() -> None:
    """The link alone: what is read can be written, in order."""
    sent = [call(n, "echo", value="ü" * n) for n in range(200)]
    result = run(script(ECHO), ndjson(*sent))
    assert [json.loads(line) for line in result.stdout.splitlines()] == sent
    assert (result.returncode, result.stderr) == (0, b"")


def test_what_was_printed_before_the_block_is_written_before_the_wire_begins() -> None:
    """What is printed in the block does not appear on standard output when the block ends either."""
    code = """
        print("before")
        import trio
        from trio_mcp import stdio_server
        async def main():
            async with stdio_server() as (read, write):
                print("within")
                async for item in read:
                    await write.send(item)
        trio.run(main)
        print("after")
    """
    result = run(script(code), ndjson({"jsonrpc": "2.0", "method": "m"}))
    assert result.stdout.split() == [b"before", b'{"jsonrpc":"2.0","method":"m"}', b"after"]
    assert result.stderr == b"within\n"
