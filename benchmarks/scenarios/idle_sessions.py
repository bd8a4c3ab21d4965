"""Memory of a legacy session over HTTP, on the server, while its client does nothing."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.http import HttpServer
from benchmarks.measure.processes import ROOT, ProcessFailed
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

OURS, OFFICIAL = "ours", "official on uvicorn"
WARM_UP = 200


def per_session(name: str, count: int, root: Path = ROOT) -> float:
    """Return the KiB by which a server's resident memory grows for each of `count` additional sessions."""
    with closing(HttpServer(server_command(name), root)) as server:
        server.wait_ready()
        with server.process.deadline():
            connection = server.connect()
            with closing(connection.socket):
                # The imports and the heap that the first sessions need are not theirs alone, so they don't count.
                sessions = {server.open_session(connection) for _ in range(WARM_UP)}
                before = server.process.rss()
                sessions |= {server.open_session(connection) for _ in range(count)}
                after = server.process.rss()
    if len(sessions) != WARM_UP + count:
        raise ProcessFailed("a server assigned the same session id twice")
    if before is None or after is None:
        raise ProcessFailed("the server ended before its memory could be read")
    return (after - before) * 1024 / count


def run(options: Options) -> Iterator[Group]:
    """Measure a new server for each sample, with all its sessions opened over one connection."""
    count = 100 if options.quick else 800
    options.progress(f"idle sessions, {count} of them")
    if not Path("/proc/self/status").exists():
        yield Group("idle", "memory of a session", "KiB", {}, notes=["left out: this platform has no /proc/PID/status"])
        return
    names = {OURS: "http_ours", **({OFFICIAL: "http_official"} if peer_installed() else {})}
    samples = interleave(
        {label: partial(per_session, name, count) for label, name in names.items()}, options.rounds, options.progress
    )
    comparisons = [Comparison(OURS, other) for other in samples if other != OURS]
    targets = {OURS: Target("<=", 20)}
    yield Group("idle", "memory of a legacy session that does nothing", "KiB", samples, comparisons, targets)
