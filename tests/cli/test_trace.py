"""`--verbose` shows what passes, over each transport, and no secrets."""

from __future__ import annotations

import sys
from functools import partial

import pytest
import trio

from trio_mcp import Client, FailoverParameters, HttpServerParameters, Server, StdioServerParameters
from trio_mcp.cli.trace import MAX_SHOWN, Trace
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    Response,
    TransportFailure,
)

server = Server("traced")


@server.tool
def sign_in(password: str, name: str = "") -> str:
    """Sign in."""
    return "ok"


SECRETS = {"password": "hunter22"}
HEADERS = {"Authorization": "Bearer abc123def456", "Cookie": "id=s3cr3t-biscuit", "X-Api-Key": "k3y-of-mine"}


@pytest.mark.parametrize("transport", ["http", "sse", "websocket", "tcp", "failover"])
async def test_each_transport_is_shown_without_secrets(transport: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with trio.open_nursery() as nursery:
        serve = getattr(server, f"serve_{'http' if transport == 'failover' else transport}")
        url = await nursery.start(partial(serve, port=0))
        kinds = {"http": "http", "failover": "http", "sse": "sse", "websocket": "ws"}
        target = url if transport == "tcp" else HttpServerParameters(url, kind=kinds[transport], headers=HEADERS)
        if transport == "failover":
            target = FailoverParameters([target])
        async with Client(Trace().of(target)) as client:
            assert (await client.call_tool("sign_in", SECRETS)).data == "ok"
            carrier = client.transport.carrier
        nursery.cancel_scope.cancel()
    shown = capsys.readouterr().err
    assert carrier == url
    assert " --> tools/call (" in shown
    assert '{"name": "sign_in", "arguments": {"password": "***"}' in shown
    assert " <-- result of tools/call, " in shown
    for secret in (*SECRETS.values(), *(value.split()[-1].partition("=")[2] or value for value in HEADERS.values())):
        assert secret not in shown
    if transport != "tcp":
        path = url.partition("://")[2]
        assert f"{path}" in shown
        assert "uthorization: Bearer ***" in shown
        first = " <-- 101 Switching Protocols" if transport == "websocket" else " <-- 200"
        assert first in shown
    # A server of the oldest transport is not asked for anything newer, with or without a trace.
    assert ("server/discover" in shown) is (transport != "sse")


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_of_this_machine_is_traced_without_the_proxy(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A proxy would learn the token; and this one does not exist."""
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(getattr(server, f"serve_{kind}"), port=0))
        async with Client(Trace().of(HttpServerParameters(url, kind=kind, headers=HEADERS))) as client:
            await client.list_tools()
        nursery.cancel_scope.cancel()
    assert " <-- result of tools/list" in capsys.readouterr().err


async def test_a_process_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["-c", "import sys; print('no JSON'); sys.stdin.readline()", "--token", "s3cr3t"]
    with pytest.raises(Exception, match="exited with status 0"):
        async with Client(Trace().of(StdioServerParameters(sys.executable, words))):
            pass
    shown = capfd.readouterr().err
    assert "*** starts " in shown
    assert "--token ***" in shown
    assert "s3cr3t" not in shown
    assert "<-- malformed" in shown
    assert "*** lost the server process" in shown


LINES: list[tuple[Incoming, str]] = [
    (Request(1, "ping"), "ping (1)"),
    (Request("a", "tools/call", {"name": "x\x1b[31m"}), """tools/call ('a') {"name": "x\\u001b[31m"}"""),
    (Notification("n\x1b/x", {"progressToken": 5, "token": "t"}), """n\\x1b/x {"progressToken": 5, "token": "***"}"""),
    (Response(9, {"x": "a" * 2 * MAX_SHOWN}), f'result (9) {{"x": "{"a" * (MAX_SHOWN - 8)}… (1,010 characters)'),
    (ErrorResponse(9, ErrorData(-32602, "no", {"a": 1})), 'error -32602 (9) no {"a": 1}'),
    # No message can look like a line of the trace.
    (ErrorResponse(None, ErrorData(-32700, "no\nsense")), "error -32700 no\n              sense"),
    (Notification("n" * 2 * MAX_SHOWN), "n" * (MAX_SHOWN - 1) + "…"),
    (Notification("n\n   0.000 s --> ping (1)"), "n 0.000 s --> ping (1)"),
    (Batch((Request(1, "ping"), Notification("x"))), "a batch of 2\n   0.000 s <-- ping (1)\n   0.000 s <-- x"),
    (Malformed(-32700, "not JSON"), "malformed not JSON"),
]


@pytest.mark.parametrize(("message", "line"), LINES)
async def test_each_message_is_a_line(
    message: Incoming, line: str, capsys: pytest.CaptureFixture[str], autojump_clock: trio.testing.MockClock
) -> None:
    Trace().message("<--", message)
    assert capsys.readouterr().err == f"   0.000 s <-- {line}\n"


async def test_a_response_tells_what_it_answers(
    capsys: pytest.CaptureFixture[str], autojump_clock: trio.testing.MockClock
) -> None:
    trace = Trace()
    trace.message("-->", Request(1, "tools/list"))
    await trio.sleep(0.5)
    trace.message("<--", Response(1, {}))
    trace.message("***", TransportFailure(ValueError("it broke")))
    assert capsys.readouterr().err.splitlines() == [
        "   0.000 s --> tools/list (1)",
        "   0.500 s <-- result of tools/list, 500 ms (1) {}",
        "   0.500 s *** lost it broke",
    ]
