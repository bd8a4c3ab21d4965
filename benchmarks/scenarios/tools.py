"""Many tools: the cost of registering one, of listing them all, and their memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.load import wire
from benchmarks.measure.processes import LINUX, Process
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

COUNTS = (1_000, 10_000)
LISTED = {"first": "the first tools/list, all pages", "later": "a later tools/list, all pages"}


def _ask(process: Process, method: str, params: dict[str, Any]) -> dict[str, Any]:
    process.write(wire.request(1, method, params, "modern"))
    return wire.result_of(process.read_line(), 1)


def _cost_of_list(process: Process, count: int) -> float:
    """List all tools, and return the milliseconds of the server's CPU time."""
    before, found = process.cpu_time(), 0
    params: dict[str, Any] | None = {}
    while params is not None:
        page = _ask(process, "tools/list", params)
        found += len(page["tools"])
        params = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
    used = process.cpu_time() - before
    if found != count + 1:
        raise wire.WrongAnswer(f"tools/list gave {found} tools instead of {count + 1}")
    return used * 1000


class _Case:
    """The figures of servers with so many tools, by contender."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.lists: dict[str, dict[str, list[float]]] = {each: {} for each in LISTED}
        self.memory: dict[str, list[float]] = {}

    def sample(self, name: str) -> float:
        """Start a server, and return the milliseconds of CPU time that registering a tool has taken it."""
        with Process(server_command("many_tools", name, str(self.count))) as process, process.deadline(300):
            spent = _ask(process, "tools/call", {"name": "spent", "arguments": {}})["structuredContent"]["result"]
            if LINUX:
                for samples in self.lists.values():
                    samples.setdefault(name, []).append(_cost_of_list(process, self.count))
            if (memory := process.rss()) is not None:
                self.memory.setdefault(name, []).append(memory)
        return float(spent) * 1000 / self.count


def run(options: Options) -> Iterator[Group]:
    """Measure a new server for each sample."""
    names = ["ours", *(["official"] if peer_installed() else [])]
    comparisons = [Comparison("ours", other) for other in names[1:]]
    for count in (100,) if options.quick else COUNTS:
        options.progress(f"{count:,} tools")
        case, tools = _Case(count), f"{count:,} tools"
        samples = interleave({name: partial(case.sample, name) for name in names}, options.rounds, options.progress)
        targets = {} if options.quick else {"ours": Target("<=", 0.4)}
        yield Group("tools", f"{tools}: CPU time to register one", "ms", samples, comparisons, targets)
        for each, listed in case.lists.items():
            if listed:
                yield Group("tools", f"{tools}: CPU time of {LISTED[each]}", "ms", listed, comparisons)
        if case.memory:
            yield Group("tools", f"{tools}: resident memory, all listed", "MiB", case.memory, comparisons)
