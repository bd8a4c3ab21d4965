"""What is refused before any process is started, and the warning of what will not work."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import trio

from trio_mcp import MemoryEventStore, Server
from trio_mcp.server.processes import supervisor
from trio_mcp.server.processes.command import check_processes
from trio_mcp.stores import MemoryStores

RUN = "from trio_mcp import Server; Server('desk').run('http', port=0, processes=2)"


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        (["-c", RUN], "", "it was given with -c"),
        ([], RUN, "it comes from standard input"),
        (["-i", "-c", "pass"], RUN + "\n", "this is an interactive session"),
    ],
)
def test_a_program_that_is_in_no_file_is_refused(words: list[str], stdin: str, why: str) -> None:
    done = subprocess.run([sys.executable, *words], input=stdin, capture_output=True, text=True, timeout=60)
    assert f"RuntimeError: processes= starts the program again in each process, but {why}: write" in done.stderr


def test_a_test_is_refused() -> None:
    with pytest.raises(RuntimeError, match="but pytest runs it: write the program to a file"):
        Server("desk").run("http", port=0, processes=2)


@pytest.mark.parametrize(
    ("transport", "processes", "error"),
    [
        ("http", 0, "processes must be from 1 to 256, got 0"),
        ("http", -1, "processes must be from 1 to 256, got -1"),
        ("http", 10_000, "processes must be from 1 to 256, got 10000"),
        ("http", True, "processes must be an integer, got True"),
        ("http", 2.0, "processes must be an integer, got 2.0"),
        ("http", "2", "processes must be an integer, got '2'"),
        ("stdio", 2, "a client on stdio has one process; write run('http', processes=…)"),
        ("sse", 1, "messages of an HTTP+SSE client would reach processes without its stream; leave out processes="),
        ("tcp", 2, "write run('http', processes=…) or run('websocket', processes=…)"),
        ("unix", 2, "write run('http', config=…, processes=…) with config.bind = ['unix:/path']"),
    ],
)
def test_bad_arguments_are_refused(transport: Any, processes: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        Server("desk").run(transport, processes=processes)
    if transport != "http":
        error = f"processes= does not apply to {transport!r}: {error}"
    assert str(caught.value) == error
    assert caught.type is (TypeError if "integer" in error else ValueError)


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(RuntimeError, match="which Windows does not have: start several programs on ports of their own"):
        check_processes("http", 2)


@pytest.mark.parametrize("count", [1, 2])
def test_stores_in_memory_are_refused_for_more_than_one_process(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "again", list)
    monkeypatch.setattr(trio, "run", lambda run: 0)
    server = Server("desk", stores=MemoryStores())
    if count == 1:
        server.run("http", port=0, processes=1)
        return
    with pytest.raises(ValueError, match=r"stores=MemoryStores\(\) can't be shared by several processes"):
        server.run("http", port=0, processes=count)


@pytest.mark.parametrize(
    ("arguments", "count", "warned"),
    [
        ({}, 2, True),
        ({"event_store": MemoryEventStore()}, 2, True),
        ({}, 1, False),
        ({"stateless": True}, 2, False),
        ({"transport": "websocket"}, 2, False),
        ({"revisions": ["2026-07-28"]}, 2, False),
        ({"stores": "desk.db"}, 2, False),
    ],
)
def test_sessions_of_the_legacy_era_get_one_warning(
    arguments: dict[str, Any],
    count: int,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without stores they live in one process; a WebSocket is a session of its own."""
    monkeypatch.setattr(supervisor, "again", list)
    monkeypatch.setattr(trio, "run", lambda run: 0)
    words = {"transport": "http", **arguments}
    server = Server("desk", **{name: words.pop(name) for name in ("revisions", "stores") if name in words})
    server.run(words.pop("transport"), port=0, processes=count, **words)
    assert [record.message for record in caplog.records if "lives in one of the" in record.message] == [
        "each session of the legacy era lives in one of the 2 processes, and its requests find it only on one "
        "connection: give the server stores, serve with stateless=True, or limit the server to modern revisions; "
        "see how-to/processes"
    ] * warned
