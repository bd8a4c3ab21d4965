"""`trio-mcp stores`: whether a file is fit for use, and what lies there; or what is wrong with it."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import sys
from pathlib import Path

import pytest
import trio

from tests.cli.running import command, environment
from tests.redis_server import redis_server
from trio_mcp import Client, StdioServerParameters, StoredEvent
from trio_mcp.cli import main
from trio_mcp.cli.exits import FAILED, OK, USAGE
from trio_mcp.stores import SqliteStores, StoredSession, StoredTask, ValkeyStores, inspection


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
    with contextlib.closing(sqlite3.connect(place, isolation_level=None)) as other:
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


# --- engines ----------------------------------------------------------------------------------------------------------


@pytest.mark.redis
def test_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with redis_server() as engine:
        assert main(["stores", engine.url, "--prefix", "desk"]) == FAILED
        assert "is empty: no server has used it yet" in capsys.readouterr().err

        async def fill() -> None:
            async with ValkeyStores(engine.url, prefix="desk") as stores:
                await stores.own("desk")
                for number, lease in enumerate((None, 60, None)):
                    task = StoredTask(
                        key=f"{number}",
                        owner="",
                        tool="t",
                        status="working" if number < 2 else "failed",
                        created=1.0,
                        updated=1.0,
                        expires=None,
                    )
                    await stores.add_task(task, lease=lease)
                await stores.announce(["tools", "prompts"])
                member = await stores.sessions.join(lease=60)
                await stores.sessions.join(lease=60)
                for key in ("session", "another", "old"):
                    expires = stores.now() + (-1 if key == "old" else 60)
                    await stores.sessions.add(StoredSession(key, b"", {}, expires), limit=10)
                await stores.sessions.open("session", member.token, 1, ["1"])
                await stores.sessions.append("session", [StoredEvent(1, 1, b"x")], member.token)
                await stores.sessions.carry("session", member.token, 0)

        trio.run(fill)
        before = engine.keys()
        assert main(["stores", engine.url, "--prefix", "desk"]) == OK
        said = capsys.readouterr().out.splitlines()
        assert said[0] == f"{engine.url} is fit for use, with the prefix desk (layout 1)"
        for line in (
            "server:   desk",
            "tasks:    1 failed, 2 working (1 held by a process)",
            "sessions: 2, 1 open streams, 2 members, 1 events",
            "changes:  2 topics of late",
        ):
            assert line in said
        assert any(
            re.match(r"engine:   (Redis|Valkey) \d+\.\S+, without an append-only file; .* MiB, without a limit", each)
            for each in said
        )
        assert main(["stores", engine.url, "--prefix", "desk", "--json"]) == OK
        found = json.loads(capsys.readouterr().out)
        assert (found["server"], found["tasks"], found["running"]) == ("desk", {"failed": 1, "working": 2}, 1)
        assert engine.keys() == before
        engine.ask("set", "{other}:about", "x")
        assert main(["stores", engine.url, "--prefix", "other"]) == FAILED
        assert "belongs to another program" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["valkey://ann:geheim@127.0.0.1:1"], USAGE, "needs --prefix NAME"),
        (["valkey://ann:geheim@127.0.0.1:1/x", "--prefix", "desk"], USAGE, "must name the database by a number"),
        (["valkey://ann:geheim@127.0.0.1:1", "--prefix", "{"], USAGE, "no braces or blanks"),
        (["valkey://ann:geheim@127.0.0.1:1", "--prefix", "desk"], FAILED, "the connection is refused"),
        (["desk.db", "--prefix", "desk"], USAGE, "--prefix does not apply to a file"),
    ],
)
def test_an_engine_that_cannot_be_inspected(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stores", *words]) == status
    error = capsys.readouterr().err
    assert said in error
    assert "geheim" not in error


# --- run --stores and worker --stores ---------------------------------------------------------------------------------

DESK = """
from pydantic import BaseModel
from trio_mcp import Context, Principal, Server
from trio_mcp.stores import UserStateOptions

class Count(BaseModel):
    value: int = 0

server = Server(
    "the desk", principal=lambda ctx: Principal("ann"), user_state=UserStateOptions(trust_principal=True)
)

@server.tool
async def count(ctx: Context) -> int:
    return (await ctx.update_user_state(Count, lambda found: Count(value=found.value + 1))).value
"""


async def counted(folder: Path, place: str) -> int:
    program, *arguments = command("run", "desk.py", "--stores", place)
    target = StdioServerParameters(program, arguments, cwd=str(folder), env=environment())
    async with Client(target) as client:
        return int((await client.call_tool("count")).data)


async def test_a_server_runs_with_the_stores_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(DESK)
    assert [await counted(tmp_path, "desk.db") for _ in range(2)] == [1, 2]


@pytest.mark.redis
async def test_a_server_runs_with_an_engine_and_its_name_as_prefix(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(DESK)
    with redis_server() as engine:
        assert [await counted(tmp_path, engine.url) for _ in range(2)] == [1, 2]
        assert engine.ask("hget", "{the-desk}:about", "server") == "the desk"


@pytest.mark.parametrize("name", ["run", "worker"])
def test_stores_that_cannot_be_are_a_usage_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("desk.py").write_text(DESK)
    assert main([name, "desk.py", "--stores", "valkey://ann:geheim@host/x"]) == USAGE
    said = capsys.readouterr().err
    assert "--stores: url must name the database by a number" in said
    assert "geheim" not in said
