"""`trio-mcp worker` runs the tasks of a server's file without clients, and refuses files that have none to run."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cli.running import command, environment, run
from trio_mcp import Client, StdioServerParameters
from trio_mcp.extensions import Tasks
from trio_mcp.extensions.tasks.records import key_of
from trio_mcp.stores import SqliteStores

SERVER = """
import os
import sys

import trio

from trio_mcp import InputOptions, Server
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.stores import KeyRing

server = Server("films", stores={stores}, extensions={extensions})

{tool}
async def render() -> int:
    if "--works" not in sys.argv:
        await trio.sleep_forever()
    return os.getpid()
"""
TOOL = '@server.tool(task=TaskPolicy(after=0, on_loss="rerun"))'


def film_server(folder: Path, *, stores: str = "'films.db'", extensions: str = "[Tasks()]", tool: str = TOOL) -> Path:
    file = folder / "films.py"
    file.write_text(SERVER.format(stores=stores, extensions=extensions, tool=tool))
    return file


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there without a chance to clean up")
async def test_a_worker_runs_the_tasks_that_others_have_left_and_ends_on_a_signal(tmp_path: Path) -> None:
    film_server(tmp_path)
    program, *arguments = command("run", "films.py")
    target = StdioServerParameters(program, arguments, cwd=str(tmp_path), env=environment())
    async with Client(target, extensions=[Tasks()]) as client:
        task = await Tasks.of(client).start("render")
    async with trio.open_nursery() as nursery:
        worker: trio.Process = await nursery.start(
            partial(
                trio.run_process,
                command("worker", "films.py", "--", "--works"),
                cwd=tmp_path,
                env=environment(),
                check=False,
            )
        )
        with trio.fail_after(30):
            key = key_of(task.id)
            assert key is not None
            async with SqliteStores(tmp_path / "films.db") as stores:
                with stores.listen("tasks") as listener:
                    while (stored := await stores.task(key)) is None or stored.status == "working":
                        await listener.woken()
            worker.send_signal(signal.SIGTERM)
            status = await worker.wait()
    assert (stored.status, status) == ("completed", 0)
    assert json.loads(stored.result)["result"]["structuredContent"] == {"result": worker.pid}


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"extensions": "None", "tool": "@server.tool"}, "has no tasks: make it with extensions=[Tasks()]"),
        ({"stores": "None"}, "are in the memory of each process, so a worker gets none: make it with stores="),
        ({"stores": "'missing/films.db'"}, "can't use the stores of films.py"),
        ({"stores": "'films.db', input=InputOptions(key=KeyRing.file('none'))"}, "can't be read: No such file"),
    ],
)
def test_a_file_without_tasks_that_a_worker_could_run_is_refused(
    tmp_path: Path, changed: dict[str, str], complaint: str
) -> None:
    film_server(tmp_path, **changed)
    done = run(tmp_path, "worker", "films.py")
    assert done.returncode in (1, 2)
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_proxy_has_no_tasks_that_a_worker_could_run(tmp_path: Path) -> None:
    (tmp_path / "proxy.py").write_text(
        "from trio_mcp import ProxyServer, Server\n"
        "from trio_mcp.extensions import Tasks\n"
        "server = ProxyServer(Server('films'), extensions=[Tasks()], stores='proxy.db')\n"
    )
    done = run(tmp_path, "worker", "proxy.py")
    assert done.returncode == 2
    assert "is a proxy, and its tasks run in the upstream server" in done.stderr
