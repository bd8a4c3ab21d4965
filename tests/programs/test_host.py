"""examples/host.py, with three servers of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import trio

from tests.interop.conftest import environment, everything_server, filesystem_server, npm, official_server
from tests.interop.support import DEADLINE, Launch

from .test_programs import EXAMPLES, load

__all__ = ["environment", "everything_server", "filesystem_server", "npm", "official_server"]

pytestmark = pytest.mark.interop


def test_the_host_is_short() -> None:
    assert len((EXAMPLES / "host.py").read_text().splitlines()) <= 100


async def test_a_host_with_three_servers_of_others(
    everything_server: Launch, filesystem_server: Launch, official_server: Launch, tmp_path: Path
) -> None:
    """Calls run side by side, are stopped and fail one by one; forms and sampling; a killed server comes back."""
    (tmp_path / "note.txt").write_text("tea at five")
    launches = {"everything": everything_server, "files": filesystem_server, "python": official_server}
    config = tmp_path / "mcp.json"
    servers = {name: {"command": it.command, "args": it.args, "env": it.env} for name, it in launches.items()}
    config.write_text(json.dumps({"mcpServers": servers}))

    shown: list[str] = []
    show, told = trio.open_memory_channel[str](1000)
    user, lines = trio.open_memory_channel[str](100)

    async def until(wanted: Callable[[str], bool] | str) -> str:
        """Return the first line that begins so, or is wanted, of those that no wait has seen."""
        with trio.move_on_after(DEADLINE / 2):
            async for line in told:
                shown.append(line)
                if line.startswith(wanted) if isinstance(wanted, str) else wanted(line):
                    return line
        raise AssertionError(shown)

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load("host").Host(config, show.send_nowait).run, lines)
            for _ in launches:
                await until(lambda line: line.endswith("is connected"))
            user.send_nowait("tools")
            await until("python__ask_everything: ")
            assert {"everything__echo", "files__read_text_file", "python__add"} <= {
                line.partition(":")[0] for line in shown
            }

            # The first call runs on while others come and go; then it is stopped.
            user.send_nowait('python__slow {"seconds": 3600}')
            await until("1: 1")
            user.send_nowait(f'files__read_text_file {{"path": "{tmp_path / "note.txt"}"}}')
            await until("2: tea at five")
            user.send_nowait('everything__trigger-long-running-operation {"duration": 0.2, "steps": 2}')
            await until("3: 2")
            await until("3: Long running operation completed")
            user.send_nowait("stop 1")
            await until("1: stopped")
            user.send_nowait('python__events {"until": "slow cancelled"}')
            await until("4: calling")
            assert "slow cancelled" in await until("4: ")

            # Forms and sampling, in both eras.
            user.send_nowait('everything__trigger-sampling-request {"prompt": "tea?", "maxTokens": 9}')
            assert "tea?" in await until("the model is asked")
            assert "I have read 1 message" in await until("5: LLM sampling result")
            user.send_nowait("python__ask")
            await until("? Which colour? ['colour']")
            user.send_nowait('{"colour": "red"}')
            await until("6: painted red")
            user.send_nowait("everything__trigger-elicitation-request")
            await until("? ")
            user.send_nowait("")  # the user declines
            assert "decline" in await until("7: ❌")

            # A call that fails is one line; so is a misspelt name, or one without an object; and a server that is
            # killed comes back.
            user.send_nowait('files__read_text_file {"path": "/etc/passwd"}')
            await until("8: failed: Access denied")
            user.send_nowait("python__ad")
            await until("9: server 'python': Unknown tool: ad; did you mean 'python__add'?")
            user.send_nowait("python__add [1]")
            await until("10: arguments must be a mapping, got list")
            user.send_nowait('python__slow {"seconds": 3600}')
            await until("11: 1")
            killed(official_server)
            await until(lambda line: line.startswith("11: server 'python': "))
            await until("python is connected")
            user.send_nowait('python__add {"a": 2, "b": 3}')
            await until("12: 5")
            user.close()
            for _ in launches:
                await until(lambda line: line.endswith("is closed"))


def killed(launch: Launch) -> None:
    (process,) = (each for each in psutil.Process().children(recursive=True) if each.cmdline()[1:] == [*launch.args])
    process.kill()
