"""A server made of a recording: the client that made it sees no difference, and what was not recorded says so."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from tests.cli.running import command, environment
from tests.kit import golden
from tests.kit.golden import MODES, WAYS
from trio_mcp import Answers, Client, Context, McpError, RequestTimeout, Server, StdioServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.conformance import recorded
from trio_mcp.conformance.recorded_server.book import read_book
from trio_mcp.conformance.recorded_server.http import PATH, RecordedHttp
from trio_mcp.conformance.recorded_server.serving import serve_lines
from trio_mcp.conformance.transcript import TranscriptError
from trio_mcp.conformance.transcript.files import FileTape, TranscriptWriter


class Order(BaseModel):
    item: str


def shop() -> Server:
    """Return a server that answers otherwise each time, asks, reports progress, logs, fails, and changes its lists."""
    server = Server("shop", version="1.0.0", instructions="Prices are in cents.")
    sold = 0

    @server.tool
    async def sell(item: str, password: str = "") -> int:
        """Sell something."""
        nonlocal sold
        sold += len(item)
        return sold

    @server.tool
    async def order(ctx: Context) -> str:
        """Ask what to order."""
        await ctx.report_progress(1, 2, "asking")
        answer = await ctx.elicit("Which?", Order)
        await ctx.report_progress(2, 2, "ordering")
        await ctx.log("info", "ordered")
        return f"ordered {answer.data.item}" if answer.data is not None else "nothing ordered"

    @server.tool
    async def write(ctx: Context) -> str:
        """Ask a model, and where to write."""
        answer = await ctx.sample("Write a poem.", max_tokens=10)
        roots = await ctx.list_roots()
        return f"{len(str(answer.content))} letters to {len(roots)} folders"

    @server.tool
    async def wait(ctx: Context) -> None:
        """Wait."""
        await ctx.report_progress(1)
        await trio.sleep_forever()

    @server.tool
    async def grow() -> str:
        """Offer another tool."""
        server.add_tool(sell, name="sell_more")
        return "grown"

    @server.resource("shop://hours")
    def hours() -> str:
        return "9 to 5"

    @server.prompt
    def ad(item: str) -> str:
        return f"Write about {item}."

    return server


def answers(item: str | None = "pear", poem: str = "Roses") -> Answers:
    async def fill(params: Any) -> dict[str, Any] | None:
        return None if item is None else {"item": item}

    return Answers(elicitation=fill, sampling=lambda params: poem, roots=[Path("/data")])


async def talk(target: Any, mode: str, item: str | None = "pear", poem: str = "Roses") -> list[Any]:
    """Say all that a client can say, and return all that it sees."""
    seen: list[Any] = []
    logs: list[Any] = []

    async def attempt(call: Callable[[], Any]) -> None:
        try:
            found = await call()
        except McpError as exc:
            found = (exc.code, exc.message, exc.data)
        seen.append(found.to_wire() if hasattr(found, "to_wire") else getattr(found, "text", None) or found)

    with trio.fail_after(60):
        async with Client(
            target, mode=mode, answers=answers(item, poem), log_level="info", on_log=lambda each: logs.append(each.data)
        ) as client:
            info = client.server_info
            seen += [client.protocol_version, info and info.to_wire(), client.capabilities.to_wire()]
            seen += [client.instructions, [each.to_wire() async for each in client.iter_tools()]]
            for password in ("hunter2", "hunter2", ""):
                await attempt(lambda: client.call_tool("sell", {"item": "pear", "password": password}))  # noqa: B023
            progress: list[Any] = []
            await attempt(
                lambda: client.call_tool(
                    "order", on_progress=lambda each: progress.append((each.progress, each.message))
                )
            )
            seen.append(progress)
            await attempt(lambda: client.call_tool("write"))
            await attempt(lambda: client.call_tool("sell", {"itm": "pear"}))
            await attempt(lambda: client.call_tool("no_such_tool"))
            await attempt(lambda: client.get_prompt("ad", {"item": "pear"}))
            await attempt(lambda: client.read_resource("shop://hours"))
            await attempt(lambda: client.read_resource("shop://none"))
            with trio.CancelScope() as scope:
                await client.call_tool("wait", on_progress=lambda _: scope.cancel())
            seen.append(scope.cancelled_caught)
            async with client.listen(tools_list_changed=True) as events:
                await attempt(lambda: client.call_tool("grow"))
                seen.append(await anext(events))
            seen += [[each.name async for each in client.iter_tools()], logs]
    return seen


async def record(path: Path, way: str, mode: str) -> list[Any]:
    with path.open("wb") as file:
        tape = FileTape(TranscriptWriter(file, target="shop"))
        async with golden.served(shop(), way) as url, golden.recorded(url, tape) as near:
            return await talk(near, mode)


@contextlib.asynccontextmanager
async def over_http(path: Path) -> AsyncIterator[str]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with background_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, RecordedHttp(read_book(path), nursery).serve, listeners)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}{PATH}"


def cases() -> list[Any]:
    return [
        pytest.param(way, mode, id=f"{way}-{mode}", marks=[pytest.mark.legacy] if way == "http" else [])
        for way in WAYS
        for mode in MODES
    ]


@pytest.mark.parametrize(("way", "mode"), cases())
async def test_the_client_that_made_a_recording_sees_no_difference(tmp_path: Path, way: str, mode: str) -> None:
    path = tmp_path / "said.jsonl"
    before = await record(path, way, mode)
    assert await talk(recorded(path), mode) == before
    # Another client, another time: nothing is used up.
    assert await talk(recorded(path), mode) == before
    if way == "http" or mode == MODES[1]:
        async with over_http(path) as url:
            assert await talk(url, mode) == before


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_recording_is_served_over_stdio_by_the_command(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "said.jsonl"
    before = await record(path, "tcp", mode)
    words = ["-m", "trio_mcp", "replay", str(path), "--as-server"]
    assert await talk(StdioServerParameters(sys.executable, words, cwd=golden.ROOT), mode) == before


@pytest.mark.legacy
async def test_a_recording_is_served_over_http_by_the_command(tmp_path: Path) -> None:
    path = tmp_path / "said.jsonl"
    before = await record(path, "tcp", MODES[0])
    words = command("replay", str(path), "--as-server", "--http", "0")
    process = await trio.lowlevel.open_process(words, stderr=subprocess.PIPE, env=environment())
    assert process.stderr is not None
    try:
        line = b""
        with trio.fail_after(60):
            while not line.endswith(b"to end\n"):
                line += await process.stderr.receive_some()
        assert await talk(line.split()[6].decode().rstrip(","), MODES[0]) == before
    finally:
        process.send_signal(signal.SIGINT)
        with trio.CancelScope(shield=True):
            assert await process.wait() == 0
            await process.stderr.aclose()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def path(tmp_path: Path, mode: str) -> Path:
    await record(tmp_path / "said.jsonl", "tcp", mode)
    return tmp_path / "said.jsonl"


async def test_what_was_never_recorded_shows_the_nearest_request(path: Path, mode: str) -> None:
    async with Client(recorded(path), mode=mode, answers=answers()) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("sell", {"item": "pears"})
        assert caught.value.code == -32602
        assert caught.value.message == (
            'not in the recording: tools/call {"arguments": {"item": "pears"}, "name": "sell"}; '
            'the nearest recorded request is tools/call {"arguments": {"itm": "pear"}, "name": "sell"}'
        )
        with pytest.raises(McpError) as caught:
            await client.request("x/none", {"text": "\x1b" * 1000})
        assert caught.value.code == -32601
        assert caught.value.message.startswith('not in the recording: x/none {"text": "\\u001b\\u001b')
        assert "; the recorded methods are " in caught.value.message
        assert len(caught.value.message) < 700
        await client.ping() if mode == MODES[0] else None


async def test_a_form_must_be_filled_in_as_it_was_and_the_rest_may_differ(path: Path, mode: str) -> None:
    """What a person says decides what the server does; a poem or a folder differs from run to run."""
    before = await talk(recorded(path), mode)
    other = await talk(recorded(path), mode, item="apple", poem="Violets are blue")
    differing = [(one, two) for one, two in zip(before, other, strict=True) if one != two]
    ((_, refused), *rest) = differing
    assert "not in the recording: " in refused[1]
    assert "apple" in refused[1]
    assert [one for one, _ in rest] in (
        [[(1.0, "asking"), (2.0, "ordering")], ["ordered"]],
        [before[9], before[-1]],
    )
    declined = await talk(recorded(path), mode, item=None)
    assert "not in the recording" in declined[8][1]


async def test_the_same_request_with_other_answers_is_another_recording(tmp_path: Path) -> None:
    path = tmp_path / "said.jsonl"
    with path.open("wb") as file:
        tape = FileTape(TranscriptWriter(file))
        async with golden.served(shop(), "tcp") as url, golden.recorded(url, tape) as near:
            for item in ("pear", "apple", None):
                async with Client(near, mode=MODES[0], answers=answers(item)) as client:
                    await client.call_tool("order")
    for item, text in ((None, "nothing ordered"), ("apple", "ordered apple"), ("pear", "ordered pear")):
        async with Client(recorded(path), mode=MODES[0], answers=answers(item)) as client:
            assert (await client.call_tool("order")).text == text


async def test_many_clients_at_once_do_not_disturb_each_other(path: Path, mode: str) -> None:
    seen: list[Any] = []
    server = recorded(path)

    async def one() -> None:
        seen.append(await talk(server, mode))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(one)
    assert all(each == seen[0] for each in seen)


async def test_a_client_that_leaves_or_is_cancelled_leaves_nothing_behind(path: Path, mode: str) -> None:
    with trio.CancelScope() as scope:
        async with Client(recorded(path), mode=mode, answers=answers()) as client:
            await client.call_tool("wait", on_progress=lambda _: scope.cancel())
    assert scope.cancelled_caught
    async with Client(recorded(path), mode=mode, answers=answers()) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", timeout=0.01)
    await trio.testing.wait_all_tasks_blocked()


# --- bytes ------------------------------------------------------------------------------------------------------------


async def lines(path: Path, *sent: bytes) -> list[Any]:
    """Send lines to a recorded server, close, and return what comes back."""
    ours, theirs = trio.testing.memory_stream_pair()
    received = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, read_book(path), theirs.receive_some, theirs.send_all)
        await ours.send_all(b"".join(each + b"\n" for each in sent))
        await trio.testing.wait_all_tasks_blocked()
        with contextlib.suppress(trio.TooSlowError), trio.fail_after(1):
            while True:
                received += await ours.receive_some()
                if received.count(b"\n") == len(sent):
                    break
        await ours.aclose()
    return [json.loads(line) for line in received.splitlines()]


HOSTILE = {
    "no JSON": (b"{", -32700),
    "much too deep": (b"[" * 100_000, -32700),
    "no such method": (b'{"jsonrpc": "2.0", "id": 1, "method": "x"}', -32601),
    "params of another type": (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": 7}', -32602),
    "arguments of another type": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": [], "arguments": 7}}',
        -32602,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bytes_are_answered_with_an_error(name: str, path: Path, autojump_clock: Any) -> None:
    line, code = HOSTILE[name]
    (answer,) = await lines(path, line)
    assert answer["error"]["code"] == code


async def test_what_needs_no_answer_gets_none(path: Path, autojump_clock: Any) -> None:
    quiet = (
        b"7",
        b"null",
        b"[]",
        b'{"id": 1}',
        b'{"method": 7}',
        b'{"jsonrpc": "2.0", "id": "recorded-1", "result": 7}',
    )
    assert await lines(path, *quiet) == []


async def test_web_pages_and_other_paths_are_refused(path: Path) -> None:
    import httpx

    async with over_http(path) as url, httpx.AsyncClient() as client:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        asked = {
            403: client.post(url, json=hello, headers={"origin": "https://evil.example"}),
            404: client.post(f"{url}/none", json=hello),
            400: client.post(url, content=b"{"),
            405: client.get(url),
        }
        for status, call in asked.items():
            assert (await call).status_code == status
        assert (await client.post(url, json=hello, headers={"mcp-session-id": "none"})).status_code == 404
        assert (await client.post(url, json=hello)).json()["result"] == {}


def transcript(*events: Any, **first: Any) -> str:
    head = {"trio-mcp": "transcript", "version": 1, **first}
    return "".join(f"{json.dumps(each)}\n" for each in (head, *events))


def said(sender: str, message: Any, **more: Any) -> dict[str, Any]:
    return {"time": 0, "sender": sender, "kind": "message", "message": message, **more}


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
UNFIT = {
    "torn": (transcript(said("client", PING))[:-20], "line 2: malformed JSON: "),
    "foreign": ('{"log": {"entries": []}}', "this is neither a transcript nor a plan of trio-mcp"),
    "a plan": ('{"trio-mcp": "plan", "version": 1}', "this is not a transcript"),
    "another version": (transcript(version=7), "written by a different version of trio-mcp"),
    "empty": ("", "this is neither a transcript nor a plan of trio-mcp"),
    "nothing said": (transcript(), "nothing is answered in this recording"),
    "nothing answered": (transcript(said("client", PING)), "nothing is answered in this recording"),
    "only a server": (transcript(said("server", {"jsonrpc": "2.0", "id": 1, "result": {}})), "nothing is answered"),
    "much too deep": (transcript() + '{"message": ' + "[" * 100_000, "line 2: nested too deeply"),
    "no messages": (transcript(said("client", 7), said("server", [[], None, 7])), "nothing is answered"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_file_that_no_server_can_be_made_of_is_one_clear_line(name: str, tmp_path: Path) -> None:
    content, text = UNFIT[name]
    (tmp_path / "said.jsonl").write_text(content)
    with pytest.raises(TranscriptError) as caught:
        recorded(tmp_path / "said.jsonl")
    assert str(caught.value).startswith(f"{tmp_path}/said.jsonl")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_recording_that_ends_too_early_says_so(tmp_path: Path) -> None:
    path = tmp_path / "said.jsonl"
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "a"}}
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    path.write_text(
        transcript(
            said("client", {**PING, "method": "initialize", "params": {}}),
            said("server", {"jsonrpc": "2.0", "id": 1, "result": hello}),
            said("client", call),
        )
    )
    async with Client(recorded(path), mode="legacy") as client:
        with pytest.raises(McpError, match=r'the recording ends before the response to tools/call \{"name": "a"\}'):
            await client.call_tool("a")
