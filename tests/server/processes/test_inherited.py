"""What a process takes for its inheritance: the mark in the environment, the secrets, and its way to report."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trio_mcp import Server
from trio_mcp.server.base_server import core_of
from trio_mcp.server.processes import child
from trio_mcp.server.processes.child import inherited, report_busy
from trio_mcp.server.signals import CHILD
from trio_mcp.stores import SqliteStores, StoreBusy

SECRETS = {"key": "ab" * 32, "nonce": "cd" * 32}


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """A pipe with the secrets, as a supervisor leaves it to a child that has read nothing yet."""
    monkeypatch.setattr(child, "_inherited", [])
    reading, writing = os.pipe()
    os.write(writing, json.dumps(SECRETS).encode() + b"\n")
    yield reading, writing
    os.close(reading)


@pytest.mark.parametrize(
    "mark", ["", "x", "[]", "{}", "1", '{"supervisor": "1"}', '{"supervisor": 0, "control": 65000}']
)
def test_a_mark_that_is_not_the_parents_makes_no_child_and_is_removed(
    mark: str, control: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHILD, mark)
    assert inherited() is None
    assert CHILD not in os.environ
    report_busy(1.0)  # does nothing
    os.close(control[1])


def test_a_process_that_a_child_has_started_is_no_child(
    control: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHILD, json.dumps({"supervisor": 0, "control": control[0]}))
    assert inherited() is None
    os.close(control[1])


def test_a_child_whose_supervisor_has_ended_meanwhile_does_not_take_its_place(
    control: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.close(control[1])
    monkeypatch.setenv(CHILD, json.dumps({"supervisor": 0, "control": control[0]}))
    with pytest.raises(SystemExit, match="the supervisor of this process has ended"):
        inherited()


def test_a_child_has_the_secrets_and_its_descriptors_are_not_handed_on(
    control: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    reading, reports = os.pipe()
    mark: dict[str, Any] = {
        "supervisor": os.getppid(),
        "number": 3,
        "sockets": [("https", listening.fileno())],
        "grace": 5.0,
        "control": control[0],
        "reports": reports,
    }
    for each in (control[0], reports, listening.fileno()):
        os.set_inheritable(each, True)
    monkeypatch.setenv(CHILD, json.dumps(mark))
    mine = inherited()
    assert mine is not None
    assert inherited() is mine
    assert (mine.key, mine.nonce, mine.number) == (b"\xab" * 32, b"\xcd" * 32, 3)
    assert "xab" not in repr(mine)
    assert "xcd" not in repr(mine)
    [(scheme, sock)] = mine.sockets
    assert (scheme, sock.getsockname()) == ("https", listening.getsockname())
    assert not any(os.get_inheritable(each) for each in (control[0], reports, sock.fileno()))
    # Reports are lines. A supervisor that does not read them, or has ended, neither blocks nor fails the child.
    report_busy(1.5)
    assert os.read(reading, 100) == b"busy 1.500\n"
    for _ in range(10_000):
        report_busy(1.5)
    os.close(reading)
    report_busy(1.5)
    listening.detach()
    sock.close()
    os.close(reports)
    os.close(control[1])


async def test_a_child_that_cannot_open_its_stores_reports_that_they_are_busy(
    tmp_path: Path, control: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one that was stopped in a transaction, while the others start, would keep them from it for a minute."""
    reading, reports = os.pipe()
    mark = {
        "supervisor": os.getppid(),
        "number": 1,
        "sockets": [],
        "grace": 1.0,
        "control": control[0],
        "reports": reports,
    }
    monkeypatch.setenv(CHILD, json.dumps(mark))
    path = tmp_path / "desk.db"
    async with SqliteStores(path):
        pass
    core = core_of(Server("desk", stores=SqliteStores(path, timeout=0.1)))
    core.inherited = inherited()
    os.set_blocking(reading, False)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            async with core.open_run():
                pass
    assert os.read(reading, 100).startswith(b"busy 0.1")
    for each in (reading, reports, control[1]):
        os.close(each)
