"""Time from spawning a stdio server to its first ``tools/list`` answer."""

from __future__ import annotations

import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.load import wire
from benchmarks.measure.processes import ROOT, Process, environment, python
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import StdioServer, stdio_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.load.wire import Era
    from benchmarks.options import Options

INTERPRETER = "python -c pass (to its exit)"

OF_OFFICIAL, OF_TYPESCRIPT, OF_BARE = Target("<=", 0.38), Target("<=", 1.35), Target("<=", 1.2)
COMPARISONS = [
    Comparison("ours, modern", "official, modern", OF_OFFICIAL),
    Comparison("ours, legacy", "official, legacy", OF_OFFICIAL),
    Comparison("ours, modern", "TypeScript v2, modern", OF_TYPESCRIPT),
    Comparison("ours, legacy", "TypeScript v2, legacy", OF_TYPESCRIPT),
    Comparison("ours, legacy", "TypeScript v1, legacy"),
    Comparison("ours, modern", "FastMCP, modern"),
    Comparison("ours, legacy", "FastMCP, legacy"),
    Comparison("ours, modern", "before, modern"),
    Comparison("ours, legacy", "before, legacy"),
    Comparison("ours, modern", "bare Trio loop", OF_BARE),
    Comparison("ours, modern", INTERPRETER),
]


def list_tools(process: Process, era: Era) -> None:
    """Ask a new server for its tools; in the legacy era wait for the answer to ``initialize`` first, as required."""
    if era == "legacy":
        process.write(wire.initialize(1))
        wire.result_of(process.read_line(), 1)
        process.write(wire.initialized())
    process.write(wire.request(2, "tools/list", {}, era))
    names = {tool["name"] for tool in wire.result_of(process.read_line(), 2)["tools"]}
    if names != {"add", "echo", "pause"}:
        raise wire.WrongAnswer(f"tools/list gave {sorted(names)}")


def _first_tools_list(server: StdioServer) -> float:
    """Return the milliseconds from the start of a server to its first ``tools/list`` answer."""
    with Process(server.command, server.root) as process, process.deadline():
        list_tools(process, server.era)
        return (time.perf_counter() - process.started) * 1000


def _interpreter_alone() -> float:
    started = time.perf_counter()
    subprocess.run(python("-c", "pass"), env=environment(), cwd=ROOT, check=True)
    return (time.perf_counter() - started) * 1000


def _import_breakdown(name: str) -> list[str]:
    """Return the imports that cost a server program most, by ``-X importtime`` (which itself slows them down)."""
    command = python("-X", "importtime", "-c", f"import runpy; runpy.run_path('benchmarks/servers/{name}.py')")
    done = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=True)
    entries: list[tuple[int, int, str]] = []
    for entry in done.stderr.splitlines():
        fields = entry.removeprefix("import time:").split("|")
        if len(fields) == 3 and fields[0].strip().isdigit():
            entries.append((int(fields[0]), int(fields[1]), fields[2].strip()))
    total = sum(own for own, _, _ in entries)
    lines = [f"{name}: {len(entries)} imports, {total / 1000:.0f} ms; the most expensive, own and total time:"]
    entries.sort(reverse=True)
    lines += [f"  {own / 1000:6.1f} ms {whole / 1000:7.1f} ms  {module}" for own, whole, module in entries[:15]]
    return lines


def run(options: Options) -> Iterator[Group]:
    """Measure a new process for each sample. Unless for a quick look, an unmeasured run caches byte code first."""
    options.progress("start-up")
    servers = stdio_servers(options)
    contenders: dict[str, Callable[[], float]] = {
        label: partial(_first_tools_list, server) for label, server in servers.items() if "on Trio" not in label
    }
    contenders[INTERPRETER] = _interpreter_alone
    if not options.quick:
        for contender in contenders.values():
            contender()
    samples = interleave(contenders, options.short_rounds, options.progress)
    group = Group("startup", "spawn to the first tools/list answer", "ms", samples)
    group.comparisons = [c for c in COMPARISONS if c.left in samples and c.right in samples]
    if options.explain:
        for name in ("ours", *(["official"] if peer_installed() else []), "bare"):
            group.notes += _import_breakdown(name)
    yield group
