"""A real nginx, with the configuration that a page of the docs advises."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["advised", "folder_of_nginx", "nginx"]

HOW_TO = Path(__file__).resolve().parents[1] / "docs" / "how-to"

NOBODY = 65534  # the traditional number of this user: nginx must not run as root

CONF = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log info;
worker_rlimit_nofile {files};
events {{ worker_connections {connections}; }}
http {{
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {http}
}}
"""


def advised(page: str, changes: Mapping[str, str]) -> str:
    """Return the configuration that a page of the docs advises, with the addresses and limits of a test.

    Args:
        page: The name of the page, which has one configuration.
        changes: What stands there, and what a test needs in its place.
    """
    (block,) = re.findall(r"```nginx\n(.*?)```", (HOW_TO / f"{page}.md").read_text(), re.DOTALL)
    for old, new in changes.items():
        assert old in block
        block = block.replace(old, new)
    return str(block)


@contextlib.contextmanager
def folder_of_nginx() -> Iterator[Path]:
    """Yield a new folder for the configuration, the logs, and what else nginx writes."""
    # Not `tmp_path`, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        if not os.geteuid():
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@contextlib.contextmanager
def nginx(
    folder: Path, http: str, fronts: Sequence[socket.socket], *, connections: int = 512, may_complain: bool = False
) -> Iterator[None]:
    """Run nginx until the end of the block.

    Args:
        folder: Its folder.
        http: Its servers: what stands in the block `http` of its configuration.
        fronts: The sockets of the addresses at which it listens, which it closes here.
        connections: How many connections it may have, to clients and to servers.
        may_complain: Whether it may have something to complain about, such as a server that has ended.
    """
    text = CONF.format(folder=folder, http=http, connections=connections, files=2 * connections)
    (folder / "nginx.conf").write_text(text)
    command = ["nginx", "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
    user: dict[str, Any] = {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    # As when it replaces its own program: it takes the sockets of the addresses in its configuration over from there.
    descriptors = [each.fileno() for each in fronts]
    environment = {**os.environ, "NGINX": "".join(f"{each};" for each in descriptors)}
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment, pass_fds=descriptors, **user)
    # From here on they are its own: connections wait until it accepts them, and are refused if it has ended.
    for each in fronts:
        each.close()
    try:
        yield
        assert process.poll() is None, (folder / "error.log").read_text()
    finally:
        process.terminate()
        process.wait()
    if may_complain:
        return
    said = [line for line in (folder / "error.log").read_text().splitlines() if re.search(r"\[(?!info|notice)", line)]
    assert not [line for line in said if "buffered to a temporary file" not in line]  # a warning: a large body
