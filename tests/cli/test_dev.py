"""`trio-mcp dev`: what it gives to the Inspector, and how both end. A script stands in for npx.

The Inspector itself is met in `tests/interop/test_inspector.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import command, config, environment, run

# Shows the words, the file and the variable, and ends.
TELLS = """\
#!/bin/sh
echo "$1 $2 $CLIENT_PORT"
cat "$3"
exit 3
"""
# Waits with a process below it that ignores what would end it.
WAITS = """\
#!/bin/sh
sh -c 'trap "" INT TERM; exec sleep 1000' &
echo "$3"
wait
"""


@pytest.fixture
def npx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script, first in PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    script = tmp_path / "bin" / "npx"
    _write(script, TELLS)
    return script


def _write(script: Path, text: str) -> None:
    script.write_text(text)
    script.chmod(0o755)


def _entry(done: subprocess.CompletedProcess[str], name: str) -> dict[str, Any]:
    """Return what the Inspector is told of the server, which must be all that it is told."""
    words, *rest = done.stdout.splitlines()
    assert words.startswith("@modelcontextprotocol/inspector --config ")
    servers = json.loads("\n".join(rest))["mcpServers"]
    assert list(servers) == [name]
    entry: dict[str, Any] = servers[name]
    return entry


PYTHON = ["-m", "trio_mcp"]
TARGETS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "a file": (
        ["shop.py", "--env", "KEY=secret", "--", "--root", "x"],
        "shop",
        {"type": "stdio", "args": [*PYTHON, "run", "shop.py", "--", "--root", "x"], "protocolEra": "auto"},
    ),
    "a command": (
        ["--mode", "2025-06-18", "--", "node", "server.js"],
        "node",
        {"type": "stdio", "command": "node", "args": ["server.js"], "env": {}, "protocolEra": "legacy"},
    ),
    "a URL": (
        ["https://host.example/mcp", "--header", "X-Key: secret", "--mode", "2026-07-28"],
        "https-host-example-mcp",
        {
            "type": "streamable-http",
            "url": "https://host.example/mcp",
            "headers": {"X-Key": "secret"},
            "protocolEra": "modern",
        },
    ),
    "an entry": (
        ["mcp.json#old"],
        "mcp-json-old",
        {"type": "sse", "url": "http://host.example/sse", "headers": {}, "protocolEra": "auto"},
    ),
    "a WebSocket": (
        ["wss://host.example/mcp", "--header", "X-Key: secret"],
        "wss-host-example-mcp",
        {
            "type": "stdio",
            "args": [*PYTHON, "bridge", "wss://host.example/mcp", "--mode", "auto", "--header=X-Key: secret"],
        },
    ),
    "a socket": (
        ["unix:/run/mcp.sock"],
        "unix-run-mcp-sock",
        {"type": "stdio", "args": [*PYTHON, "bridge", "unix:/run/mcp.sock", "--mode", "auto"]},
    ),
}


@pytest.mark.parametrize("target", TARGETS)
def test_the_inspector_gets_the_target_as_its_only_server(shop: Path, npx: Path, target: str) -> None:
    """In a file that only this user can read: names of variables and headers come with their secrets."""
    words, name, expected = TARGETS[target]
    config(shop, old={"type": "sse", "url": "http://host.example/sse"})
    done = run(shop, "dev", *words, forking=False)
    assert done.returncode == 1, done.stderr  # that of the script, which is not 0
    entry = _entry(done, name)
    assert {key: entry[key] for key in expected} == expected
    if target == "a file":
        assert entry["command"] == sys.executable
        assert entry["env"]["KEY"] == "secret"
    assert not Path(done.stdout.splitlines()[0].split()[-1]).exists(), "the file is left behind"


def test_the_port_is_that_of_the_page(shop: Path, npx: Path) -> None:
    assert run(shop, "dev", "shop.py", "--port", "6300").stdout.splitlines()[0].endswith(" 6300")


def test_the_folder_of_the_file_is_private(shop: Path, npx: Path) -> None:
    _write(npx, '#!/bin/sh\nstat -c %a "$(dirname "$3")"\n')
    done = run(shop, "dev", "shop.py")
    assert (done.returncode, done.stdout) == (0, "700\n")


def test_without_npx_it_says_where_that_comes_from(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(shop / "nowhere"))
    done = run(shop, "dev", "shop.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "trio-mcp dev: the Inspector is started with npx, which is not in PATH: npx comes with Node.js"
        " (https://nodejs.org)\n"
    )


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_is_passed_on_and_nothing_is_left_behind(
    shop: Path, npx: Path, number: signal.Signals, status: int
) -> None:
    """Neither a process, even if it ignores the signal, nor the file."""
    _write(npx, WAITS)
    with subprocess.Popen(
        command("dev", "shop.py"),
        cwd=shop,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        file = Path(process.stdout.readline().decode().strip())
        assert file.exists()
        process.send_signal(number)
        # The process below has inherited the pipe, which ends with it.
        assert process.communicate(timeout=60) == (b"", None)
    assert process.returncode == status
    assert not file.exists()
