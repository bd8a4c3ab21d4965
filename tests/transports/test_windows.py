"""Without what Windows lacks: everything can be imported, networks work, and the rest is one clear error each."""

from __future__ import annotations

import subprocess
import sys
import textwrap

# Everything is imported once, for what the other packages need on this machine; then again, without the names that
# Python's documentation marks as "Unix only".
LACKING = """
import contextlib, errno, functools, importlib, os, pkgutil, select, signal, socket, stat, sys
import trio
import trio_mcp

def import_all():
    for found in pkgutil.walk_packages(trio_mcp.__path__, "trio_mcp."):
        if not found.name.startswith(("trio_mcp.__main__", "trio_mcp.testing")):
            importlib.import_module(found.name)

import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "trio_mcp"]:
    del sys.modules[name]
for module in ("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[module] = None  # importing it fails

def files_only(function):
    @functools.wraps(function)
    def checked(descriptor, *arguments):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "the number of a socket is not that of a file")
        return function(descriptor, *arguments)
    return checked

os.read, os.write = files_only(os.read), files_only(os.write)
socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)  # for Trio's own use
for owner, names in {
    os: "chown fchmod fchown fork forkpty getegid geteuid getgid getpgid getpgrp getpriority getuid getresuid killpg"
        " mkfifo openpty register_at_fork sched_getaffinity set_blocking setsid sysconf uname wait waitpid WNOHANG",
    select: "poll POLLIN POLLOUT PIPE_BUF",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 pthread_sigmask sigwait",
    socket: "AF_UNIX SO_PEERCRED SO_REUSEPORT SCM_RIGHTS TCP_USER_TIMEOUT",
    trio.socket: "AF_UNIX SO_PEERCRED",
    trio.lowlevel: "FdStream",
}.items():
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
sys.platform = "win32"
"""

SERVES = """
import trio_mcp

import_all()
from trio_mcp import Client, Server, StdioServerParameters, TransportError
from hypercorn.config import Config

server = Server("calculator")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def echo(text: str) -> str:
    return text

LONG = "x" * 1_000_000  # more than the buffers of a socket hold

async def main():
    for serve in (server.serve_http, server.serve_websocket, server.serve_tcp):
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            url = await nursery.start(functools.partial(serve, port=0, shutdown=stop))
            for mode in ("2026-07-28", "legacy"):
                async with Client(url, mode=mode) as client:
                    added = await client.call_tool("add", {"a": 1, "b": 2})
                    echoed = await client.call_tool("echo", {"text": LONG})
                    print(url.partition(":")[0], mode, added.data, echoed.data == LONG)
            stop.set()
    config = Config()
    config.bind = ["unix:socket"]
    for attempt in (
        lambda: server.serve_stdio(),
        lambda: Client(StdioServerParameters("python")).__aenter__(),
        lambda: server.serve_unix("socket"),
        lambda: server.serve_http(config=config),
        lambda: Client("unix:socket").__aenter__(),
    ):
        try:
            await attempt()
        except TransportError as exc:
            print(exc)

trio.run(main)

@contextlib.asynccontextmanager
async def lifespan(server):
    signal.raise_signal(signal.SIGTERM)
    yield

Server("short", lifespan=lifespan).run("http", port=0)
print("ended by the signal")
try:
    server.run()
except SystemExit as exc:
    print("exits:", exc)
"""

STDIO = (
    "trio_mcp can't use stdio on win32, where trio.lowlevel.FdStream is missing: use HTTP, WebSocket or TCP instead, "
    "such as server.run('http') and Client('http://127.0.0.1:8000/mcp')"
)
UNIX = f"Python does not support Unix sockets on win32{STDIO[STDIO.index(':') :]}"

SAID = f"""\
http 2026-07-28 3 True
http legacy 3 True
ws 2026-07-28 3 True
ws legacy 3 True
tcp 2026-07-28 3 True
tcp legacy 3 True
{STDIO}
{STDIO}
{UNIX}
{UNIX}
{UNIX}
ended by the signal
exits: the server can't continue: {STDIO}
"""


def test_networks_work_and_the_rest_says_what_to_use() -> None:
    program = textwrap.dedent(LACKING) + SERVES
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == (SAID, 0), done.stderr
