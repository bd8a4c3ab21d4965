"""Python processes that start at once: forks of one that has imported what takes most of a second to import.

`command` is a command line for such a process. It has its own environment, folder, arguments and standard streams,
gets the signals that are sent to it, and ends with its own status. With `FORKING` in its environment, the programs that
it starts with ``sys.executable`` are such processes, too.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

__all__ = ["FORKING", "LOADED", "children", "command"]

ROOT = Path(__file__).resolve().parents[1]

LOADED = (
    "jsonschema_rs",
    "trio_mcp.cli.client_commands",
    "trio_mcp.cli.run",
    "trio_mcp.cli.targets",
    "trio_mcp.client.access",
    "trio_mcp.client.client",
    "trio_mcp.http.client.heads",
    "trio_mcp.http.headers",
    "trio_mcp.server.run",
    "trio_mcp.server.server",
    "trio_mcp.session.client",
    "trio_mcp.session.server",
    "trio_mcp.stdio.client",
    "trio_mcp.stdio.server",
)
"""What a process with the package imports sooner or later: not the doors, which import nothing by themselves."""

FORKING = {"TRIO_MCP_TESTS_FORKING": "yes"}
"""What a process has in its environment whose own programs in Python are to be forks of the same origin."""

_ORIGINS: set[int] = set()

_INTERPRETER = """#!{real} -IS
import os
import runpy
import sys

words = sys.argv[1:]
if words and (words[0] == "-m" or words[0].endswith(".py")):
    sys.argv = [{handover!r}, {origin!r}, *words[words[0] == "-m":]]
    runpy.run_path(sys.argv[0])
else:
    os.execv({real!r}, [{real!r}, *words])
"""
"""A program in place of an interpreter."""


def command(what: str, *imported: str, options: tuple[str, ...] = (), root: Path = ROOT) -> list[str]:
    """Return the command for a script, or a module's ``-m``, in a fork.

    Args:
        what: The path of the script, or the name of the module.
        imported: Modules that are already imported when it starts.
        options: Options for the interpreter, such as ``-W error``.
        root: The checkout whose package and tests it imports.
    """
    return [sys.executable, "-IS", str(ROOT / "tests" / "handover.py"), _origin(root, imported, options), what]


def children(*, recursive: bool = False) -> list[psutil.Process]:
    """Return the processes that this one has started, but for those that are there to be forked."""
    return [each for each in psutil.Process().children(recursive=recursive) if each.pid not in _ORIGINS]


@functools.cache
def _origin(root: Path, imported: tuple[str, ...], options: tuple[str, ...]) -> str:
    """Start the process that is forked, which lives as long as this one, and return its address."""
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    address = str(Path(folder.name, "s"))
    process = subprocess.Popen(
        [sys.executable, *options, "-m", "tests.forks", address, *imported],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    _ORIGINS.add(process.pid)

    def end() -> None:
        process.communicate()  # the end of its input is that of the process
        folder.cleanup()

    atexit.register(end)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return address


def _main(address: str, *imported: str) -> None:
    """Fork for each connection, until the input ends."""
    for name in imported:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no fork copies what it does not use
    interpreter = Path(address).with_name("python")
    interpreter.write_text(
        _INTERPRETER.format(real=sys.executable, handover=str(ROOT / "tests" / "handover.py"), origin=address)
    )
    interpreter.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the keepers
        print("ready", flush=True)
        while 0 not in select.select([0, listener], [], [])[0]:
            near, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _keep(near, interpreter)
                return
            near.close()


def _keep(near: socket.socket, interpreter: Path) -> None:
    """Fork again, and tell the other end how the fork ended; kill it if the other end is killed."""
    data, streams, _, _ = socket.recv_fds(near, 1, 3)
    wanted = json.loads(data + near.makefile("rb").readline())
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    if (fork := os.fork()) == 0:
        near.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(woken)
        os.close(waker)
        _become(wanted, streams, interpreter)
        return
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    near.sendall(b"%d\n" % fork)
    ended, status = 0, 0
    while not ended:  # SIGCHLD also tells that the fork was stopped, or goes on
        if near in select.select([near, woken], [], [])[0]:
            os.kill(fork, signal.SIGKILL)
            ended, status = os.waitpid(fork, 0)
        else:
            os.read(woken, 100)
            ended, status = os.waitpid(fork, os.WNOHANG)
    status = os.waitstatus_to_exitcode(status)
    near.sendall(b"%d\n" % status)
    os._exit(0)


def _become(wanted: dict[str, Any], streams: list[int], interpreter: Path) -> None:
    """Become the requested process."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    what, *_ = sys.argv = wanted["argv"]
    os.environ.clear()
    os.environ.update(wanted["environment"])
    if all(os.environ.pop(name, None) for name in FORKING):
        sys.executable = str(interpreter)
    os.chdir(folder := wanted["folder"])
    if what.endswith(".py"):
        sys.path.insert(0, str(Path(what).parent))
        runpy.run_path(what, run_name="__main__")
    else:
        sys.path.insert(0, folder)
        runpy.run_module(what, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
