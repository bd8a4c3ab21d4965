"""The file of a Unix socket: its permissions, and who may take its path."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.sockets.support import served
from trio_mcp import Client, Server, TransportError
from trio_mcp.low_level import unix_client
from trio_mcp.sockets.addresses import LONGEST_PATH


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o777])
@pytest.mark.parametrize("mode", [None, 0o660, 0o666])
async def test_the_permissions_are_as_told_when_the_first_client_can_connect(
    umask: int, mode: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the umask: a client can connect only once the server listens, and by then they are set."""
    seen: list[int] = []
    listen = socket.socket.listen

    def noting(self: socket.socket, *arguments: Any) -> None:
        seen.append(mode_of(tmp_path / "mcp.sock"))
        listen(self, *arguments)

    monkeypatch.setattr(socket.socket, "listen", noting)
    settings = {} if mode is None else {"mode": mode}
    before = os.umask(umask)
    try:
        async with served("unix", tmp_path, **settings) as it, it.client() as client:
            await client.list_tools()
            assert [*seen, mode_of(tmp_path / "mcp.sock")] == [0o600 if mode is None else mode] * 2
    finally:
        os.umask(before)


async def test_the_file_goes_with_the_server(tmp_path: Path) -> None:
    async with served("unix", tmp_path):
        assert (tmp_path / "mcp.sock").is_socket()
    assert os.listdir(tmp_path) == []


async def test_what_a_server_has_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "mcp.sock"))
    async with served("unix", tmp_path) as it, it.client() as client:
        await client.list_tools()


async def test_the_socket_of_another_server_is_left_alone(tmp_path: Path) -> None:
    """When it begins, even if that server is too busy to accept; and when it ends, if that has taken the path over."""
    path = tmp_path / "mcp.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(0)
        # Each attempt leaves a connection that waits; after two, there is no place for a third.
        for _ in range(3):
            with pytest.raises(OSError, match=f"can't listen on {path}: another server is already listening there"):
                await Server("test").serve_unix(path)
    path.unlink()
    async with served("unix", tmp_path):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as later:
            later.bind(str(path))
    assert path.is_socket()


async def file(folder: Path) -> Path:
    (folder / "there").write_text("precious")
    return folder / "there"


async def directory(folder: Path) -> Path:
    (folder / "there").mkdir()
    return folder / "there"


async def link(folder: Path) -> Path:
    (folder / "there").symlink_to("elsewhere")
    return folder / "there"


@pytest.mark.parametrize("make", [file, directory, link])
async def test_what_is_not_a_socket_is_left_alone(make: Any, tmp_path: Path) -> None:
    path = await make(tmp_path)
    before = path.lstat()
    with pytest.raises(OSError, match="the path exists, but is not a socket"):
        await Server("test").serve_unix(path)
    assert path.lstat() == before


@pytest.mark.parametrize(
    ("path", "settings", "error"),
    [
        ("no/such/folder/mcp.sock", {}, "can't listen on .*/no/such/folder/mcp.sock: No such file or directory"),
        ("x" * 200, {}, f"the path of a Unix socket may be at most {LONGEST_PATH} bytes long"),
        ("", {}, "must not be empty"),
        ("a\0b", {}, "null character"),
        (7, {}, "must be a string or a path object, got int"),
        ("mcp.sock", {"mode": "600"}, "mode must be an integer, got '600'"),
        ("mcp.sock", {"mode": 600}, "mode must be from 0 to 511, got 600"),
        ("mcp.sock", {"host": "x"}, "unexpected keyword argument 'host'"),
    ],
)
async def test_wrong_arguments(
    path: Any, settings: dict[str, Any], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError, OSError), match=error):
        await Server("test").serve_unix(path, **settings)
    assert os.listdir(tmp_path) == []


async def test_a_relative_path_is_told_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(Server("test").serve_unix, "mcp.sock")
        assert url == f"unix:{tmp_path}/mcp.sock"
        for target in (url, "unix:mcp.sock", f"unix://{tmp_path}/mcp.sock"):
            async with Client(target) as client:
                assert client.server_info is not None
        nursery.cancel_scope.cancel()


async def test_a_client_waits_for_a_place_among_those_who_wait(tmp_path: Path) -> None:
    """Where the server has as many as it takes, the system says "again" at once; the client does so."""
    path = str(tmp_path / "mcp.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(path)
            with trio.move_on_after(0.05) as scope:
                async with unix_client(path):
                    pass
            assert scope.cancelled_caught
            async with trio.open_nursery() as nursery:

                async def connect() -> None:
                    async with unix_client(path):
                        pass

                nursery.start_soon(connect)
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(2):
                    (await trio.to_thread.run_sync(server.accept))[0].close()


@pytest.mark.root
async def test_others_are_kept_out(tmp_path: Path) -> None:
    async with served("unix", tmp_path) as it:
        os.chmod(tmp_path, 0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(TransportError, match="Permission denied"):
                async with it.client():
                    pass
        finally:
            os.seteuid(0)
