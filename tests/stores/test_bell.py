"""The bell beside a file: it wakes other processes, trusts no other user, and leaves nothing behind."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.waiting import eventually
from trio_mcp.stores.bell import Bell

RING = "import sys; from trio_mcp.stores.bell import Bell; Bell(sys.argv[1]).ring()"
HEAR = "import sys, trio; from trio_mcp.stores.bell import Bell; trio.run(Bell(sys.argv[1]).hear, lambda: None)"


async def ring_elsewhere(path: Path) -> None:
    await trio.run_process([sys.executable, "-c", RING, str(path)])


def folder_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-bells")


@pytest.fixture(params=["short", "d" * 120])
def path(request: Any, tmp_path: Path) -> Path:
    """The address of a socket may have 107 bytes only, wherever the file is."""
    folder = tmp_path / request.param
    folder.mkdir()
    return folder / "desk.db"


async def test_another_process_is_heard(path: Path) -> None:
    heard: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Bell(str(path)).hear, lambda: heard.append(1))
        await eventually(lambda: folder_of(path).is_dir() and any(folder_of(path).iterdir()))
        (socket,) = folder_of(path).iterdir()
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder_of(path), socket)] == [0o700, 0o600]
        await ring_elsewhere(path)
        await eventually(lambda: bool(heard))
        nursery.cancel_scope.cancel()
    assert not folder_of(path).exists()


async def test_a_process_does_not_ring_itself(path: Path) -> None:
    heard: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Bell(str(path)).hear, lambda: heard.append(1))
        await eventually(lambda: folder_of(path).is_dir() and any(folder_of(path).iterdir()))
        Bell(str(path)).ring()
        await trio.testing.wait_all_tasks_blocked()
        assert heard == []
        nursery.cancel_scope.cancel()


async def test_the_socket_of_a_killed_process_is_removed_by_the_next_that_rings(path: Path) -> None:
    process = await trio.lowlevel.open_process([sys.executable, "-c", HEAR, str(path)])
    await eventually(lambda: folder_of(path).is_dir() and any(folder_of(path).iterdir()))
    process.kill()
    await process.wait()
    Bell(str(path)).ring()
    assert list(folder_of(path).iterdir()) == []


@pytest.mark.parametrize("what", ["file", "link", "open"])
async def test_a_folder_that_is_not_ours_alone_is_not_used(path: Path, what: str) -> None:
    folder = folder_of(path)
    if what == "file":
        folder.touch()
    elif what == "link":
        (path.parent / "other").mkdir(mode=0o700)
        folder.symlink_to(path.parent / "other")
    else:
        folder.mkdir()
        folder.chmod(0o755)
    with trio.move_on_after(0.05):
        await Bell(str(path)).hear(lambda: None)
    Bell(str(path)).ring()
    assert what == "file" or list(folder.iterdir()) == []
