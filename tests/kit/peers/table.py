"""The servers and clients that others have written, and how each is started. Once installed, they need no network."""

from __future__ import annotations

import collections
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.interop import node_peers, python_peers
from tests.listening import listens_on

HERE = Path(__file__).parent

LEGACY, MODERN = "2025-11-25", "2026-07-28"
"""The newest revision of each era, in which peers are checked."""

NOWHERE = "http://127.0.0.1:9"
"""A proxy that refuses every connection, for a tool that would go to the network."""


@functools.cache
def _python(environment: str) -> str:
    """Return the interpreter of an environment, made if need be; `tests` is the one that runs this."""
    return sys.executable if environment == "tests" else str(python_peers.install(_say, environment))


@functools.cache
def _npm() -> node_peers.NodePeers:
    return node_peers.install(_say)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _ours_in_python(file: str, environment: str, *kind: str) -> Callable[[], list[str]]:
    return lambda: [_python(environment), str(HERE / file), *kind]


def _ours_in_node(file: str, kind: str) -> Callable[[], list[str]]:
    return lambda: [str(_npm().node), str(HERE / file), str(_npm().modules), kind]


def _node_server(name: str) -> Callable[[], list[str]]:
    return lambda: [str(_npm().node), str(_npm().server(name))]


def _python_server(module: str) -> Callable[[], list[str]]:
    return lambda: [_python("servers"), "-m", module]


@attrs.frozen
class Server:
    """A server of others.

    Attributes:
        title: What it is, and its version.
        command: Its command, without the arguments that say how it serves.
        modern: Whether it speaks 2026-07-28 as well as 2025-11-25.
        stdio: The arguments for stdio, or None if it has none; `{folder}` becomes a folder of its own.
        http: The arguments for Streamable HTTP, or None if it has none.
        environment: Variables for its process.
        protected: Whether it takes access tokens; their issuer is one more argument.
    """

    title: str
    command: Callable[[], list[str]]
    modern: bool = False
    stdio: tuple[str, ...] | None = ()
    http: tuple[str, ...] | None = None
    environment: dict[str, str] = attrs.field(factory=dict)
    protected: bool = False

    @property
    def runs(self) -> list[tuple[str, str]]:
        """Return each transport and revision that it is checked over."""
        transports = [name for name in ("stdio", "http") if getattr(self, name) is not None]
        revisions = [LEGACY, MODERN] if self.modern else [LEGACY]
        return [(transport, revision) for transport in transports for revision in revisions]

    def over_stdio(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command for stdio, and its variables."""
        assert self.stdio is not None
        arguments = [each.format(folder=folder) for each in self.stdio]
        return [*self.command(), *arguments], {name: at.format(folder=folder) for name, at in self.environment.items()}

    @contextmanager
    def over_http(self, *issuer: str) -> Iterator[str]:
        """Run it over HTTP, and yield its URL; a protected one with the issuer of its tokens."""
        assert self.http is not None
        command = [*self.command(), *self.http, *issuer]
        environment = os.environ | {"PORT": "0"}  # for the npm servers; ours choose a port in any case
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            assert process.stdout is not None
            try:
                words = (line.split()[-1] for line in process.stdout if line.strip())
                started = next(word.decode() for word in words if word.startswith(b"http://") or word == b"0")
                # What it prints from now on must not fill the pipe.
                threading.Thread(target=collections.deque, args=(process.stdout, 0), daemon=True).start()
                # The npm servers print the port that they were given, and not the one that they have got.
                yield started if started.startswith("http://") else f"http://127.0.0.1:{listens_on(process.pid)}/mcp"
            finally:
                process.kill()


_SDK = {"stdio": ("stdio",), "http": ("http",)}
_PROTECTED: dict[str, Any] = {"stdio": None, "http": ("http",), "protected": True}

SERVERS = {
    "python-v1": Server("Python SDK 1.30.0", _ours_in_python("python_server.py", "python_v1", "v1"), **_SDK),
    "python-v2": Server("Python SDK 2.3.0", _ours_in_python("python_server.py", "tests", "v2"), modern=True, **_SDK),
    "fastmcp": Server("FastMCP 4.2.3", _ours_in_python("python_server.py", "fastmcp", "fastmcp"), modern=True, **_SDK),
    "typescript-v1": Server("TypeScript SDK 1.32.2", _ours_in_node("ts_server.mjs", "v1"), **_SDK),
    "typescript-v2": Server("TypeScript SDK 2.4.0", _ours_in_node("ts_server.mjs", "v2"), modern=True, **_SDK),
    "python-v2-protected": Server(
        "Python SDK 2.3.0", _ours_in_python("python_server.py", "tests", "v2"), modern=True, **_PROTECTED
    ),
    "fastmcp-protected": Server(
        "FastMCP 4.2.3", _ours_in_python("python_server.py", "fastmcp", "fastmcp"), modern=True, **_PROTECTED
    ),
    "typescript-v1-protected": Server("TypeScript SDK 1.32.2", _ours_in_node("ts_server.mjs", "v1"), **_PROTECTED),
    "typescript-v2-protected": Server(
        "TypeScript SDK 2.4.0", _ours_in_node("ts_server.mjs", "v2"), modern=True, **_PROTECTED
    ),
    "everything": Server(
        "server-everything 2026.8.31", _node_server("everything"), stdio=("stdio",), http=("streamableHttp",)
    ),
    "filesystem": Server("server-filesystem 2026.8.31", _node_server("filesystem"), stdio=("{folder}",)),
    "memory": Server(
        "server-memory 2026.8.31", _node_server("memory"), environment={"MEMORY_FILE_PATH": "{folder}/memory.jsonl"}
    ),
    "git": Server("mcp-server-git 2026.10.19", _python_server("mcp_server_git"), modern=True),
    "time": Server("mcp-server-time 2026.10.19", _python_server("mcp_server_time"), modern=True),
    "fetch": Server(
        "mcp-server-fetch 2026.10.24", _python_server("mcp_server_fetch"), modern=True, stdio=("--proxy-url", NOWHERE)
    ),
}


@attrs.frozen
class Client:
    """A client on an SDK of others; its command takes `legacy` or `auto`, then the URL of a server.

    Attributes:
        title: What it is, and its version.
        command: Its command.
        modern: Whether it speaks 2026-07-28 as well as 2025-11-25.
        signs_in: Whether it is for protected servers, at which it signs in.
    """

    title: str
    command: Callable[[], list[str]]
    modern: bool = False
    signs_in: bool = False

    @property
    def revisions(self) -> list[str]:
        return [LEGACY, MODERN] if self.modern else [LEGACY]

    def for_revision(self, revision: str) -> list[str]:
        """Return its command, without the URL."""
        return [*self.command(), "legacy" if revision == LEGACY else "auto"]


CLIENTS = {
    "python-v1-client": Client("Python SDK 1.30.0", _ours_in_python("python_client.py", "python_v1", "v1")),
    "python-v2-client": Client("Python SDK 2.3.0", _ours_in_python("python_client.py", "tests", "v2"), modern=True),
    "fastmcp-client": Client("FastMCP 4.2.3", _ours_in_python("python_client.py", "fastmcp", "fastmcp"), modern=True),
    "typescript-v1-client": Client("TypeScript SDK 1.32.2", _ours_in_node("ts_client.mjs", "v1")),
    "typescript-v2-client": Client("TypeScript SDK 2.4.0", _ours_in_node("ts_client.mjs", "v2"), modern=True),
    "python-v2-sign-in": Client(
        "Python SDK 2.3.0", _ours_in_python("python_sign_in.py", "tests"), modern=True, signs_in=True
    ),
    "typescript-v1-sign-in": Client("TypeScript SDK 1.32.2", _ours_in_node("ts_sign_in.mjs", "v1"), signs_in=True),
    "typescript-v2-sign-in": Client(
        "TypeScript SDK 2.4.0", _ours_in_node("ts_sign_in.mjs", "v2"), modern=True, signs_in=True
    ),
}
