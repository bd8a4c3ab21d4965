"""The run of a server: how its process ends, what it prints and loads, and its lifespan."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pkgutil
import re
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypercorn.config import Config

from tests.peer import HANDSHAKE, ME, call, ndjson, process_peer
from tests.server.harness import LEGACY, both_eras, client_of, server_with
from trio_mcp import Client, Context, Server, types
from trio_mcp.low_level import memory_link_pair
from trio_mcp.server.signals import run_network
from trio_mcp.types import meta

PROGRAM = """
from trio_mcp import Server

server = Server("test")

@server.tool
def leave() -> None:
    raise SystemExit(7)

server.run()
"""


def test_a_tool_that_exits_ends_the_process() -> None:
    with process_peer([sys.executable, "-c", PROGRAM]) as peer:
        peer.send(call(1, "leave"))
        assert peer.exit() == 7


def test_a_tool_that_cannot_be_cancelled_does_not_keep_the_process_alive() -> None:
    program = """
import trio
import trio_mcp.server.base_server
from trio_mcp import Server

trio_mcp.server.base_server.EXIT_GRACE = 0.3
server = Server("test")

@server.tool
async def shielded() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

server.run()
"""
    with process_peer([sys.executable, "-c", program]) as peer:
        peer.send(call(2, "shielded"))
        peer.close_input()
        assert peer.exit() == 1
    assert b"still running after" in peer.errors
    assert b"Traceback" not in peer.errors


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_http_server_serves_even_if_it_cannot_print_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    served = False

    async def serve(*, shutdown: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        nonlocal served
        task_status.started("http://127.0.0.1:1/mcp")
        await trio.testing.wait_all_tasks_blocked()
        os.kill(os.getpid(), signal.SIGTERM)
        await shutdown.wait()
        served = True

    monkeypatch.setattr(sys, "stderr", Full())
    run_network("s", serve, {})
    assert served


LISTED = """
import sys
import importlib.metadata  # where pydantic looks for plugins; from Python 3.13 on, it needs json
before = set(sys.modules)
from trio_mcp import Server
server = Server("test")
@server.tool
def add(a: int, b: int) -> int:
    '''Add.'''
    return a + b
server.run()
print(*(sys.modules.keys() - before), file=sys.stderr)
"""

UNUSED = {
    # No second event loop, no client, no HTTP, no command line.
    *("asyncio", "anyio", "httpx", "hypercorn", "trio_websocket", "urllib.request"),
    *("trio_mcp.client", "trio_mcp.http", "trio_mcp.cli", "trio_mcp.session.client"),
    # Nothing for what it does not offer, does not ask for, and was not asked.
    *(
        f"trio_mcp.server.features.{each}"
        for each in ("completion", "custom", "listening", "mounts", "prompts", "resources")
    ),
    *(
        f"trio_mcp.server.input.{each}"
        for each in ("forms", "interactive", "questions", "request_state", "rounds", "sampling", "sampling_loop")
    ),
    *(
        f"trio_mcp.{each}"
        for each in (
            "eras.client_negotiation",
            "extensions",
            "joined_names",
            "principal",
            "schema.forms",
            "schema.validator",
            "server.extensions",
            "server.features.extension_parts",
            "server.functions.dependencies",
            "server.media",
            "server.statistics",
            "server.task_policy",
            "session.statistics",
            "stores",
            "uri_templates",
        )
    ),
    *("difflib", "json", "jsonschema_rs", "mimetypes"),
    # Models take longest: only those of a tool, and of what all constructs share.
    *(
        f"trio_mcp.types.{each.name}"
        for each in pkgutil.iter_modules(types.__path__)
        if each.name not in ("_base", "common", "error_codes", "meta", "methods", "tools", "versions")
    ),
}
"""What a server that has listed its tools has not imported."""


@both_eras
def test_a_server_that_lists_its_tools_has_loaded_nothing_else(revision: str) -> None:
    fields = {meta.PROTOCOL_VERSION: revision, meta.CLIENT_INFO: ME, meta.CLIENT_CAPABILITIES: {}}
    params = {} if revision == LEGACY else {"_meta": fields}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    lines = ndjson(*(HANDSHAKE if revision == LEGACY else []), asked)
    done = subprocess.run([sys.executable, "-c", LISTED], input=lines, capture_output=True, check=True)
    assert b'"name":"add"' in done.stdout.splitlines()[-1]
    loaded = set(done.stderr.decode().split())
    assert "trio_mcp.server.features.tools" in loaded
    assert loaded.isdisjoint(UNUSED), loaded & UNUSED


# --- the lifespan surrounds each serving, and its state reaches the handlers -----------------------------------------


@attrs.define
class State:
    number: int


@attrs.define
class Recorder:
    """A lifespan that keeps account of itself."""

    events: list[str] = attrs.Factory(list)

    @contextlib.asynccontextmanager
    async def __call__(self, server: Server) -> AsyncIterator[State]:
        number = sum(event == "in" for event in self.events)
        self.events.append("in")
        try:
            yield State(number)
        finally:
            self.events.append("out")


def number(ctx: Context[State]) -> int:
    return ctx.state.number


@both_eras
async def test_the_lifespan_is_entered_once_per_serving_and_its_state_reaches_handlers(revision: str) -> None:
    recorder = Recorder()
    server = server_with(number, lifespan=recorder)
    assert recorder.events == []
    async with client_of(server, revision) as client:
        assert recorder.events == ["in"]
        for _ in range(2):
            assert (await client.call_tool("number")).data == 0
    assert recorder.events == ["in", "out"]
    async with client_of(server, revision) as one, client_of(server, revision) as other:
        assert (await one.call_tool("number")).data == 1
        assert (await other.call_tool("number")).data == 2
    assert recorder.events == ["in", "out", "in", "in", "out", "out"]


class Broken(Exception):
    pass


def failing(when: str) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        if when == "start":
            raise Broken(when)
        try:
            yield
        finally:
            raise Broken(when)

    return lifespan


@both_eras
@pytest.mark.parametrize("when", ["start", "end"])
async def test_a_failure_leaves_serve_and_the_block_of_a_client_as_it_is(when: str, revision: str) -> None:
    server = Server("test", lifespan=failing(when))
    async with memory_link_pair() as (ours, theirs):
        await ours.write.aclose()
        with pytest.raises(Broken, match=when):
            await server.serve(theirs)
    entered = False
    with pytest.raises(Broken, match=when):
        async with Client(server, mode=revision) as client:
            entered = True
            await client.list_tools()
    assert entered == (when == "end")


async def test_the_lifespan_exits_when_serving_is_cancelled() -> None:
    recorder = Recorder()
    server = Server("test", lifespan=recorder)
    async with memory_link_pair() as (_ours, theirs), trio.open_nursery() as nursery:
        await nursery.start(server.serve, theirs)
        assert recorder.events == ["in"]
        nursery.cancel_scope.cancel()
    assert recorder.events == ["in", "out"]


async def test_a_running_tool_ends_before_the_lifespan_exits() -> None:
    """A handler must not meet a closed database."""
    recorder = Recorder()
    started = trio.Event()

    async def tool() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            recorder.events.append("tool ended")

    server = server_with(tool, lifespan=recorder)
    async with client_of(server) as client, trio.open_nursery() as nursery:

        async def use() -> None:
            with contextlib.suppress(Exception):
                await client.call_tool("tool")

        nursery.start_soon(use)
        await started.wait()
        await client.aclose()
    assert recorder.events == ["in", "tool ended", "out"]


# --- what `Server.run` raises: the caller's line and one of the library, without what is between -------------------


def _shown(run: Callable[[], None]) -> tuple[str, list[str]]:
    """Return the last line and the names of the functions of the traceback with which a run ends."""
    with pytest.raises((OSError, TypeError, ValueError, KeyError)) as caught:
        run()
    text = "".join(traceback.format_exception(caught.value))
    assert "Cancelled" not in text, "the cancellation of the other tasks is shown"
    assert text.count("Traceback") == 1, text
    return text.splitlines()[-1], re.findall(r", in (\S+)$", text, re.MULTILINE)


@pytest.mark.parametrize("transport", ["http", "sse", "websocket", "tcp"])
def test_a_port_in_use_is_one_error_that_says_what_to_do(transport: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        last, functions = _shown(lambda: Server("s").run(transport, port=port))
    assert last.endswith(
        f"can't listen on 127.0.0.1:{port}: Address already in use; is another server running there?"
        " Choose another port"
    )
    assert functions[-2:-1] == ["<lambda>"], functions


WRONG_ARGUMENTS = {
    "the type of a port": ({"port": "8978"}, "TypeError: port must be an integer, got '8978'"),
    "an option's type": ({"max_requests": "x"}, "TypeError: max_requests must be an integer, got 'x'"),
    "an option's value": ({"runner": "h12"}, "ValueError: runner must be one of"),
    "a host that does not exist": (
        {"host": "no.such.host.invalid"},
        "can't listen on no.such.host.invalid:8000: Name or service not known",
    ),
}


@pytest.mark.parametrize("what", WRONG_ARGUMENTS)
def test_a_wrong_argument_of_run_is_one_error(what: str) -> None:
    arguments, said = WRONG_ARGUMENTS[what]
    last, functions = _shown(lambda: Server("s").run("http", **arguments))  # type: ignore[arg-type]
    assert said in last
    assert functions[-2:-1] == ["<lambda>"], functions


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.certfile, config.keyfile = str(tmp_path / "c.pem"), str(tmp_path / "k.pem")
    for fault in ("No such file or directory", "no start line|PEM lib"):
        last, functions = _shown(lambda: Server("s").run("http", config=config))
        assert re.search(f"can't serve TLS with certfile='{tmp_path}/c.pem', keyfile='{tmp_path}/k.pem': .*", last)
        assert re.search(fault, last, re.IGNORECASE)
        assert functions[-2:-1] == ["<lambda>"], functions
        for path in (config.certfile, config.keyfile):
            Path(path).write_text("not a certificate")


def test_an_error_of_the_lifespan_shows_the_lines_of_its_function_alone() -> None:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        def connect() -> None:
            raise KeyError("DATABASE_URL")

        connect()
        yield

    last, functions = _shown(lambda: Server("s", lifespan=lifespan).run("http", port=0))
    assert last == "KeyError: 'DATABASE_URL'"
    assert functions[-3:] == ["<lambda>", "lifespan", "connect"]


# --- `log_level=` of `Server.run` -------------------------------------------------------------------------------------

LEVELS = """
import logging
{setup}
from trio_mcp import Server

Server("s").run({arguments})
for name in ("trio_mcp.middleware", "mine", "hpack"):
    for level in ("DEBUG", "INFO", "WARNING"):
        logging.getLogger(name).log(getattr(logging, level), "%s %s", name, level)
"""

SHOWN = {
    "not given": ("", "", ["trio_mcp.middleware WARNING", "mine WARNING", "hpack WARNING"]),
    "info": (
        "",
        "log_level='info'",
        [f"{name} {level}" for name in ("trio_mcp.middleware", "mine", "hpack") for level in ("INFO", "WARNING")],
    ),
    # At DEBUG, hpack logs header fields, with their tokens.
    "debug": (
        "",
        "log_level='debug'",
        [
            *[f"trio_mcp.middleware {level}" for level in ("DEBUG", "INFO", "WARNING")],
            *[f"{name} {level}" for name in ("mine", "hpack") for level in ("INFO", "WARNING")],
        ],
    ),
    "error": ("", "log_level='error'", []),
    "with logging configured": (
        "logging.basicConfig(format='%(message)s', level='WARNING')",
        "log_level='info'",
        ["trio_mcp.middleware INFO", "trio_mcp.middleware WARNING", "mine WARNING", "hpack WARNING"],
    ),
}


@pytest.mark.parametrize("case", SHOWN)
def test_run_shows_the_log_from_a_level_on_and_leaves_a_configuration_as_it_is(case: str) -> None:
    setup, arguments, expected = SHOWN[case]
    program = LEVELS.format(setup=setup, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = [line.rpartition(": ")[2] for line in done.stderr.splitlines()]
    assert [line for line in found if line.startswith(("trio_mcp", "mine", "hpack"))] == expected


def test_run_refuses_a_level_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="log_level must be one of debug, info, warning, error; got 'loud'"):
        Server("s").run(log_level="loud")  # type: ignore[arg-type]
