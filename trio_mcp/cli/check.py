"""``trio-mcp check``: check a server, or a client, against the specification."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.cli.exits import INTERRUPTED, OK, Exit
from trio_mcp.cli.targets import target_of
from trio_mcp.cli.terminal import ProgressBar
from trio_mcp.cli.text import clean, clean_line
from trio_mcp.errors import TrioMcpError

if TYPE_CHECKING:
    # Imported late: they need an extra.
    from trio_mcp.testing.check.report import CheckReport, Preview, Progress

__all__ = ["run"]

EXTRA = 'this needs Hypothesis, which is not installed: pip install "trio-mcp[testing]"'


def run(options: argparse.Namespace) -> int:
    """Check the target; return 1 if a MUST is broken that is not in the baseline."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise Exit(EXTRA, hint=False) from None
    from trio_mcp.testing.report.json import json_text
    from trio_mcp.testing.report.table import table

    check, preview = _prepared(options)
    if options.dry_run:
        with _can_run():
            print(_plan(trio.run(preview), options), end="")
        return OK
    files = _Files(options)
    bar = ProgressBar(sys.stderr)
    with _can_run():
        report = trio.run(_until_interrupted, check, bar)
    print(json_text(report) if options.json else table(report), end="", flush=True)
    files.write(report)
    return INTERRUPTED if report.ended == "interrupted" else report.status


@contextlib.contextmanager
def _can_run() -> Iterator[None]:
    # All are one status here: whether the target is unreachable, silent or speaks something else, it was not checked.
    try:
        yield
    except (TrioMcpError, ValueError) as exc:
        raise Exit(str(exc), hint=False) from None


def _prepared(
    options: argparse.Namespace,
) -> tuple[Callable[..., Awaitable[CheckReport]], Callable[[], Awaitable[Preview]]]:
    """Return the functions that check the target, and that say what would be done."""
    from trio_mcp.testing.check.engine import check_client, check_server, preview_client, preview_server
    from trio_mcp.testing.rules.baseline import read_baseline
    from trio_mcp.testing.rules.catalogue import RULES
    from trio_mcp.testing.rules.selection import select_rules

    catalogue = {id_: rule for id_, rule in RULES.items() if (rule.who == "client") == options.client}
    try:
        patterns = [each.strip() for words in options.rules or ["*"] for each in words.split(",") if each.strip()]
        rules = tuple(select_rules(patterns, catalogue))
        baseline = read_baseline(options.baseline, RULES) if options.baseline else {}
    except ValueError as exc:
        raise Exit(str(exc)) from None
    selection: dict[str, Any] = {"revisions": options.revisions, "rules": rules}
    limits = {
        "examples": options.examples,
        "time": options.time,
        "seed": options.seed,
        "rate": options.rate,
        "baseline": tuple(baseline),
    }
    if options.client:
        if options.process is None:
            raise Exit("a client is given as the command that starts it: check --client -- COMMAND")
        for flag in ("allow_writes", "tool", "header"):
            if getattr(options, flag):
                raise Exit(f"--{flag.replace('_', '-')} is for servers")
        target = target_of(options)
        return partial(check_client, target, **selection, **limits), partial(preview_client, target, **selection)
    target = target_of(options)
    selection |= {"allow_writes": options.allow_writes, "tools": tuple(options.tool)}
    return partial(check_server, target, **selection, **limits), partial(preview_server, target, **selection)


async def _until_interrupted(check: Callable[..., Awaitable[CheckReport]], bar: ProgressBar) -> CheckReport:
    """Run a check until it ends; Ctrl-C ends it with what was found until then, a second Ctrl-C at once."""
    stop = trio.Event()

    async def listen(signals: Any) -> None:
        await anext(signals)
        stop.set()
        bar.clear()
        print("Stopping: again, to stop at once.", file=sys.stderr)
        await anext(signals)
        raise KeyboardInterrupt

    def show(progress: Progress) -> None:
        if bar.wanted:
            broken = f", {progress.broken} broken" if progress.broken else ""
            bar.draw(progress.examples, progress.of, f"{progress.doing}: {progress.requests} requests{broken}")

    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery(strict_exception_groups=False) as nursery:
            nursery.start_soon(listen, signals)
            try:
                report = await check(on_progress=show, stop=stop)
            finally:
                bar.clear()
            nursery.cancel_scope.cancel("checked")
    return report


# --- what is written --------------------------------------------------------------------------------------------------


class _Files:
    """The files that the command line names; what is wrong with them is said before anything is checked."""

    def __init__(self, options: argparse.Namespace) -> None:
        from trio_mcp.testing.report.files import form_of

        try:
            self._forms = {path: form_of(path) for path in options.report}
        except ValueError as exc:
            raise Exit(f"--report: {exc}") from None
        self._baseline = options.write_baseline
        for path in (*self._forms, *filter(None, [self._baseline])):
            folder = Path(path).resolve().parent
            if not os.access(folder, os.W_OK):
                raise Exit(f"can't write {path}: {folder} is not a folder that can be written to")
        self._replays = options.replays or (Path(options.report[0]).parent if options.report else None)

    def write(self, report: CheckReport) -> None:
        """Write all of them, and say so."""
        from trio_mcp.testing.check.plan_files import write_plan_files
        from trio_mcp.testing.rules.baseline import baseline_text

        for path, form in self._forms.items():
            self._write(path, form(report))
        if self._baseline:
            found = [(each.rule.id, each.failure.problem if each.failure else "") for each in report.broken]
            self._write(self._baseline, baseline_text(found))
        if self._replays is not None and report.broken:
            try:
                written = write_plan_files(report, self._replays)
            except OSError as exc:
                raise Exit(f"can't write to {self._replays}: {exc.strerror}", hint=False) from None
            for path in written:
                print(f"To see it again: trio-mcp replay {clean(str(path))} TARGET", file=sys.stderr)

    def _write(self, path: str, text: str) -> None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as exc:
            raise Exit(f"can't write {path}: {exc.strerror}", hint=False) from None


# --- --dry-run --------------------------------------------------------------------------------------------------------


def _plan(preview: Preview, options: argparse.Namespace) -> str:
    lines = [f"{options.examples} examples, {options.time:g} seconds at most, seed {options.seed}"]
    if options.rate is not None:
        lines[0] += f", {options.rate:g} requests a second at most"
    for facts in preview.facts:
        info = facts.server_info
        name = clean_line(f"{info.get('name', 'a server without a name')} {info.get('version', '')}")
        lines.append(f"{name}, over {facts.transport} in revision {facts.revision}")
        callable_ = set(facts.callable_tools)
        lines += _listed("  calls the tools", sorted(callable_))
        lines += _listed("  leaves alone the tools", sorted(set(facts.tools) - callable_))
        lines += [f"  {clean_line(note)}" for note in facts.skipped]
        lines.append(f"  reads {len(facts.resources)} resources, gets {len(facts.prompts)} prompts")
        lines += _listed("  makes the moves", preview.moves.get(facts.revision, ()))
    checkable = [rule for rule in preview.rules if rule.id not in preview.not_checkable]
    lines.append(f"judges {len(checkable)} rules")
    lines += [f"  {rule.id}" for rule in checkable]
    if preview.not_checkable:
        lines.append(f"can't check {len(preview.not_checkable)} rules")
        lines += [f"  {id_}: {clean_line(why)}" for id_, why in preview.not_checkable.items()]
    return "\n".join(lines) + "\n"


def _listed(head: str, names: Any) -> list[str]:
    return [f"{head} {', '.join(map(clean_line, names))}"] if names else []
