"""Memory of a persistent connection, on the server, after one request and while its client does nothing."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.load.http import HttpLoad
from benchmarks.measure.processes import LINUX, ProcessFailed, allow_files
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import installed_runners, our_server, server_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.options import Options

OURS, OFFICIAL = "ours on {}", "official on uvicorn"
WARM_UP = 200


def per_connection(command: Sequence[str], count: int) -> float:
    """Return the KiB by which a server's resident memory grows for each of `count` additional connections."""
    with closing(HttpLoad(command)) as load:
        load.greet()
        with load.process.deadline():
            # What the first connections need of imports and heap is not theirs alone, so they don't count.
            load.open(WARM_UP)
            before = load.process.rss()
            load.add(count)
            after = load.process.rss()
    if before is None or after is None:
        raise ProcessFailed("the server ended before its memory could be read")
    return (after - before) * 1024 / count


def run(options: Options) -> Iterator[Group]:
    """Measure a new server for each sample."""
    count = 100 if options.quick else 2000
    case = "memory of an idle connection, each after one request"
    options.progress(f"idle connections, {count} of them")
    if not LINUX:
        yield Group("connections", case, "KiB", {}, notes=["left out: this platform has no /proc/PID/status"])
        return
    allow_files(WARM_UP + count + 100)
    room = {"max_connections": WARM_UP + count + 1}
    commands = {OURS.format(runner): our_server(runner, **room) for runner in installed_runners()}
    if peer_installed():
        commands[OFFICIAL] = server_command("http_official", "json")
    samples = interleave(
        {label: partial(per_connection, command, count) for label, command in commands.items()},
        options.rounds,
        options.progress,
    )
    comparisons = [Comparison(label, OFFICIAL) for label in samples if label != OFFICIAL and OFFICIAL in samples]
    yield Group("connections", case, "KiB", samples, comparisons, {OURS.format("h11"): Target("<=", 12)})
