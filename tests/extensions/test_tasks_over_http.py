"""Tasks over Streamable HTTP, by the library and by the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.running import environment
from tests.extensions.task_server import ID, completed, created, state
from tests.http_peer import DISCOVERED, HttpPeer, giving, peer
from trio_mcp import Client
from trio_mcp.extensions import Tasks

EMPTY = {"resultType": "complete"}


def handlers(told: dict[str, Any], first: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "server/discover": giving(DISCOVERED),
        "tools/call": giving(created() if first is None else first),
        "tasks/get": giving(told),
        "tasks/update": giving(EMPTY),
        "tasks/cancel": giving(EMPTY),
        "subscriptions/listen": lambda asked: asked.error(404, -32601, "unknown method"),
    }


async def test_requests_about_a_task_repeat_its_id_in_a_header() -> None:
    """Section Streamable HTTP, Routing Headers."""
    async with peer(handlers(completed())) as server, Client(server.url, extensions=[Tasks()]) as client:
        task = await Tasks.of(client).start("x")
        assert (await task.result()).text == "done"
        await task.cancel()
    heads = [(each.rpc, each.headers.get("mcp-method"), each.headers.get("mcp-name")) for each in server.asked]
    for method in ("tasks/get", "tasks/cancel"):
        assert (method, method, ID) in heads
    assert ("tools/call", "tools/call", "x") in heads


async def run(server: HttpPeer, folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run the command line against the server; the last word is not an option."""
    command = [sys.executable, "-W", "error", "-m", "trio_mcp", *(each.replace("URL", server.url) for each in words)]
    return await trio.run_process(
        command,
        stdin=stdin.encode(),
        cwd=folder,
        env=environment(),
        check=False,
        capture_stdout=True,
        capture_stderr=True,
    )


AT_ONCE = {"resultType": "complete", "content": [{"type": "text", "text": "at once"}]}
LINES: list[tuple[list[str], dict[str, Any], Any, tuple[int, str, str]]] = [
    (["call", "URL", "x"], completed(), None, (0, "done\n", "")),
    (["call", "URL", "x", "--detach"], state(), None, (0, f"{ID}\n", "trio-mcp task watch")),
    (["call", "URL", "x", "--detach"], state(), AT_ONCE, (0, "at once\n", "there is no task")),
    (["task", "get", "URL", ID], state(statusMessage="half"), None, (0, "working: half\n", "")),
    (["task", "get", "URL", "-"], state(), None, (0, "working\n", "")),
    (["task", "watch", "URL", ID], completed(), None, (0, "done\n", "")),
    (["task", "watch", "URL", ID], completed(isError=True), None, (1, "", "done")),
    (["task", "watch", "URL", ID], state("cancelled"), None, (1, "", "the task was cancelled")),
    (["task", "cancel", "URL", ID], state(), None, (0, "", "")),
]


@pytest.mark.parametrize(
    ("words", "told", "first", "said"), LINES, ids=lambda each: " ".join(each)[:30] if isinstance(each, list) else ""
)
async def test_the_command_line(words: Any, told: Any, first: Any, said: Any, tmp_path: Path) -> None:
    async with peer(handlers(told, first)) as server:
        done = await run(server, tmp_path, *words, stdin=f"{ID}\n")
    status, out, err = said
    assert (done.returncode, done.stdout.decode()) == (status, out), done.stderr.decode()
    assert err in done.stderr.decode()
    assert ID not in done.stderr.decode()
