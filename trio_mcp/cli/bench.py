"""``trio-mcp bench``: measure how fast a server responds, with more and more calls in flight."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_mcp.cli.arguments import as_whole, from_words
from trio_mcp.cli.check import needs_kit, shown_name
from trio_mcp.cli.client_commands import tool_named
from trio_mcp.cli.exits import FAILED, INTERRUPTED, OK, TERMINATED, TIMEOUT, Exit, exit_of
from trio_mcp.cli.reporting import check_writable, until_interrupted, until_stopped, write_text
from trio_mcp.cli.targets import connected, target_of
from trio_mcp.cli.terminal import ProgressBar
from trio_mcp.cli.text import clean_line, paragraph
from trio_mcp.client.client import Client
from trio_mcp.client.config.reading import Configured
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import target_name
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.stdio.parameters import StdioServerParameters

if TYPE_CHECKING:
    # At run time, these modules are imported only where they are used, because they need an extra.
    from trio_mcp.bench.ladder import Bench, BenchProgress
    from trio_mcp.bench.plan import BenchTerms, Plan
    from trio_mcp.bench.report import BenchReport, Measured
    from trio_mcp.types.tools import Tool

__all__ = ["run"]

TIMEOUT_OF_A_CALL = 10.0
"""How many seconds a call may take by default (arbitrary): a longer call says nothing about a server's speed."""


def run(options: argparse.Namespace) -> int:
    """Measure the target; return a status that says whether all calls succeeded."""
    needs_kit()
    # The command line is checked first, so that errors in it are reported before a server is started.
    words = [(name, as_whole(given), given) for name, *given in options.tool]
    for path in (options.json, options.html):
        if path not in (None, "-"):
            check_writable(path)
    lines = [options]
    if options.compare is not None:
        # The connection options apply to both servers.
        other = vars(options) | {"target": options.compare, "process": None, "file_arguments": []}
        lines.append(argparse.Namespace(**other))
    targets = [target_of(line) for line in lines]

    bar = ProgressBar(sys.stderr)
    measuring = _Measuring(lines, targets, words, bar)
    _, interruption = trio.run(until_interrupted, measuring.until, bar)
    report = measuring.report()
    if report is None:
        return interruption
    _write(report, options)
    status = interruption or measuring.status(report)
    if options.json == "-" and status not in (OK, INTERRUPTED, TERMINATED):
        # With `--json -` a program reads standard output, so standard error tells the user how the benchmark ended.
        raise Exit(report.ending, status, hint=False)
    return status


@attrs.define(eq=False)
class _Measuring:
    """Runs a benchmark, from connecting to the report.

    Args:
        lines: The parsed command line, once for each server.
        targets: The target of each of these lines.
        words: For each named tool its name, its arguments if they are given as one JSON text, and the words of its
            arguments.
        bar: The bar that shows the progress.
    """

    _lines: Sequence[argparse.Namespace]
    _targets: Sequence[Configured]
    _words: Sequence[tuple[str, dict[str, Any] | None, list[str]]]
    _bar: ProgressBar
    _bench: Bench | None = attrs.field(default=None, init=False)
    _servers: list[Measured] = attrs.field(factory=list, init=False)

    async def until(self, stop: trio.Event) -> None:
        """Connect to the servers and measure them, until all steps are done or ``stop`` is set."""
        # Setting ``stop`` cancels the measuring, which also ends the connections at once. What has been measured by
        # then is not lost, because this object keeps it.
        await until_stopped(stop.wait, self._measure)

    async def _measure(self) -> None:
        from trio_mcp.bench.ladder import Bench, Side
        from trio_mcp.bench.plan import BenchTerms, choose
        from trio_mcp.bench.processes import children

        options = self._lines[0]
        # The default timeout of a call is not put into the options, where it would also limit the time for connecting.
        timeout = TIMEOUT_OF_A_CALL if options.timeout is None else options.timeout
        terms = BenchTerms(options.ladder, options.seconds, options.max_calls, options.max_time, timeout, options.seed)
        async with contextlib.AsyncExitStack() as stack:
            sides, listed = [], []
            for at, (line, target) in enumerate(zip(self._lines, self._targets, strict=True)):
                before = children()
                client = await stack.enter_async_context(connected(line, self._bar.clear, answers={}))
                sides.append(Side(client, children() - before))
                mark = f"{'AB'[at]}: " if len(self._lines) > 1 else ""
                self._servers.append(_described(mark, line, target, client))
                listed.append({tool.name: tool async for tool in client.iter_tools()})
                if not listed[-1]:
                    raise Exit(f"{self._servers[-1].name} lists no tools, so there is nothing to measure", FAILED)
            plan = choose(listed, self._named(listed), terms.seed)
            if not plan.calls:
                reasons = "; ".join(clean_line(note) for note in plan.notes)
                raise Exit(f"no tool can be measured: {reasons}; name one with --tool NAME name=value", FAILED)
            print(paragraph(_announcement(self._servers, plan, terms), ""), file=sys.stderr)
            for note in plan.notes:
                print(paragraph(note, "  "), file=sys.stderr)
            self._bench = Bench(sides, plan, terms, self._show)
            await self._bench.run()

    def _named(self, listed: Sequence[dict[str, Tool]]) -> list[Any]:
        from trio_mcp.bench.plan import NamedTool

        found = []
        for name, whole, words in self._words:
            for tools in listed:
                tool_named(name, tools)
            arguments = from_words(words, listed[0][name].input_schema) if words and whole is None else whole
            found.append(NamedTool(name, arguments))
        return found

    def _show(self, progress: BenchProgress) -> None:
        if self._bar.wanted:
            self._bar.draw(progress.done, progress.of, progress.doing)

    def report(self) -> BenchReport | None:
        """Return the report, or None if measuring has not begun."""
        from trio_mcp.bench.report import report_of

        if self._bench is None:
            return None
        report = report_of(self._bench, self._servers)
        if self._bench.error is not None and not any(server.steps for server in report.servers):
            # Nothing was measured, so the command ends like any other that can't reach its server.
            raise self._bench.error
        return report

    def status(self, report: BenchReport) -> int:
        """Return the exit status for a report."""
        assert self._bench is not None
        if self._bench.error is not None:
            return exit_of(self._bench.error)
        if report.ended == "stuck":
            return TIMEOUT
        dropped = {name for name, *_ in self._words} - {*self._bench.plan.tools}
        return FAILED if report.failed or dropped or not self._bench.plan.calls else OK


def _described(mark: str, line: argparse.Namespace, target: Configured, client: Client) -> Measured:
    from trio_mcp.bench.report import Measured

    info = client.server_info
    return Measured(
        name=mark + (shown_name(line) or target_name(target)),
        info="" if info is None else f"{info.name} {info.version}",
        transport=_transport(target),
        revision=client.protocol_version,
    )


def _transport(target: Configured) -> str:
    match target:
        case StdioServerParameters():
            return "stdio"
        case HttpServerParameters(kind=kind):
            return {"http": "HTTP", "sse": "HTTP+SSE", "ws": "WebSocket"}[kind]
        case FailoverParameters():
            return "several ways"
    return target.partition(":")[0]


def _announcement(servers: Sequence[Measured], plan: Plan, terms: BenchTerms) -> str:
    """Describe the benchmark that is about to start."""
    from trio_mcp.bench.plan import WARM_UP, shown_names
    from trio_mcp.bench.table import title_of

    where = " and ".join(map(title_of, servers))
    each, turns = (" each", ", in turns") if len(servers) > 1 else ("", "")
    sets = f"{len(plan.calls)} sets of arguments" if len(plan.calls) > 1 else "one set of arguments"
    hint = "" if plan.writing else ", annotated read-only,"
    seconds = len(servers) * len(terms.ladder) * terms.seconds * (1 + WARM_UP)
    text = (
        f"Calls {shown_names(plan.tools)}{hint} with {sets} at {where}. First tries each once; then keeps"
        f" {', '.join(map(str, terms.ladder))} calls in flight for {terms.seconds:g} s{each}{turns}, after a warm-up:"
        f" about {seconds:.0f} s in all. Makes at most {terms.max_calls:,} calls{each}, and takes at most"
        f" {terms.max_time:g} s; a call may take {terms.timeout:g} s. Ctrl-C ends it with what was measured."
    )
    if plan.writing:
        text += (
            f" Not annotated as read-only: {shown_names(plan.writing)}; any change that a call makes may be made up to"
            f" {terms.max_calls:,} times."
        )
    return clean_line(text)


def _write(report: BenchReport, options: argparse.Namespace) -> None:
    from trio_mcp.bench.html import html
    from trio_mcp.bench.report import json_text
    from trio_mcp.bench.table import table

    # The output is flushed, so that it comes before any text on standard error if both go to one file.
    print(json_text(report) if options.json == "-" else table(report), end="", flush=True)
    if options.json not in (None, "-"):
        write_text(options.json, json_text(report))
    if options.html is not None:
        write_text(options.html, html(report))
