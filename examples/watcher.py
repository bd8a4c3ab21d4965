"""A server that offers the text files of a folder, and tells its clients when one changes, comes or goes.

$ python examples/watcher.py              # shows it in a folder of its own
$ python examples/watcher.py FOLDER       # serves a folder over standard input and output
"""

import functools
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import trio

from trio_mcp import Client, ResourcesListChanged, ResourceUpdated, Server

EVERY = 0.05  # seconds between two looks


def make_server(folder: Path) -> Server:
    """Make the server of a folder."""

    @asynccontextmanager
    async def watching(server: Server) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(watch, server, folder)
            yield
            nursery.cancel_scope.cancel("the server ends")

    server = Server("files", version="1.0.0", lifespan=watching)

    # A client learns when it connects that there are resources, so the folder itself is always one.
    @server.resource("folder:///")
    async def names() -> list[str]:
        """The names of all files."""
        return sorted(await trio.to_thread.run_sync(look, folder))

    return server


def look(folder: Path) -> dict[str, int]:
    """Return when each text file was changed."""
    found = {}
    for file in folder.glob("*.txt"):
        with suppress(FileNotFoundError):  # it may be gone by now
            found[file.name] = file.stat().st_mtime_ns
    return found


def uri_of(name: str) -> str:
    return f"folder:///{quote(name)}"


def text_of(file: Path) -> str:
    return file.read_text()


async def watch(server: Server, folder: Path, *, task_status: trio.TaskStatus[None]) -> None:
    """Add, remove and announce resources as files come, go and change."""
    known: dict[str, int] = {}
    started = False
    while True:
        now = await trio.to_thread.run_sync(look, folder)
        for name in now.keys() - known.keys():
            read = functools.partial(text_of, folder / name)  # a sync function: it runs in a thread
            server.add_resource(uri_of(name), read, name=name, mime_type="text/plain")
        for name in known.keys() - now.keys():
            server.remove_resource(uri_of(name))
        for name in now.keys() & known.keys():
            if now[name] != known[name]:
                server.notify_resource_updated(uri_of(name))
        known = now
        if not started:
            task_status.started()
            started = True
        await trio.sleep(EVERY)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.txt").write_text("first")
        async with (
            Client(make_server(folder)) as client,
            client.listen(resources_list_changed=True, resources=["folder:///a.txt"]) as events,
        ):
            print([resource.name async for resource in client.iter_resources()])
            (folder / "b.txt").write_text("second")
            async for event in events:
                match event:
                    case ResourcesListChanged():
                        print([resource.name async for resource in client.iter_resources()])
                        (folder / "a.txt").write_text("changed")
                    case ResourceUpdated(uri):
                        print("changed:", uri)
                        break


if __name__ == "__main__":
    if sys.argv[1:]:
        make_server(Path(sys.argv[1])).run()
    else:
        trio.run(main)
