"""`trio-mcp stores`: whether a file is fit for use, and what lies there; or what is wrong with it."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest
import trio

from trio_mcp import StoredEvent
from trio_mcp.cli import main
from trio_mcp.cli.exits import FAILED, OK, USAGE
from trio_mcp.stores import SqliteStores, StoredSession, StoredTask, inspection


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file with a bit of everything."""
    path = tmp_path / "desk.db"

    async def fill() -> None:
        async with SqliteStores(path) as stores:
            await stores.own("desk")
            now = stores.now()
            task = StoredTask(key="a", owner="", tool="t", status="working", created=now, updated=now, expires=None)
            await stores.add_task(task, [("once", b"12345")], lease=60)
            await stores.put_state("ann", "cart", b"{}", tag=None, expires=None)
            await stores.announce(["tools", "prompts"])
            await stores.take("bucket", rate=0.01, burst=1)
            await stores.remember("key", seconds=60)
            member = await stores.sessions.join(lease=60)
            await stores.sessions.add(StoredSession("session", b"", {}, now + 60), limit=10)
            await stores.sessions.open("session", member.token, 1, ["1"])
            await stores.sessions.append("session", [StoredEvent(1, 1, b"x")], member.token)

    trio.run(fill)
    return path


def test_a_file_that_is_fit(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stores", str(place)]) == OK
    said = capsys.readouterr().out
    assert said.splitlines()[0] == f"{place} is fit for use (layout 3)"
    for line in (
        "server:   desk",
        "tasks:    1 working (1 held by a process); 5 bytes of journals",
        "sessions: 1, 1 open streams, 1 members, 1 events",
        "users:    1 states",
        "changes:  2 topics in the last hour",
        "counters: 1 token buckets, 1 remembered keys",
    ):
        assert line in said.splitlines()


def test_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stores", str(place), "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert (found["server"], found["tasks"], found["counts"]["topics"]) == ("desk", {"working": 1}, 2)
    assert 0 <= found["longest_wait"] < inspection.PATIENCE


def test_a_file_that_is_locked(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "PATIENCE", 0.1)
    with sqlite3.connect(place, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert main(["stores", str(place)]) == FAILED
        other.execute("ROLLBACK")
    assert f"{place} is locked: a process has been writing to it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (None, USAGE, "there is no file"),
        (b"", FAILED, "is empty: no server has used it yet"),
        (b"this is text\n" * 500, FAILED, "is not an SQLite database"),
    ],
)
def test_a_file_that_is_none_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, status: int, said: str
) -> None:
    path = tmp_path / "desk.db"
    if content is not None:
        path.write_bytes(content)
    assert main(["stores", str(path)]) == status
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


@pytest.mark.skipif(sys.platform == "win32", reason="files have no modes there")
def test_a_file_that_is_open_to_all(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place.chmod(0o644)
    assert main(["stores", str(place)]) == FAILED
    assert "is open to all users of this machine (mode 0644)" in capsys.readouterr().err


def test_a_file_that_is_damaged(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(place.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    place.write_bytes(data)
    assert main(["stores", str(place)]) == FAILED
    assert "is damaged: restore it" in capsys.readouterr().err
