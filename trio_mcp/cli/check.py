"""``trio-mcp check``: check a server, or a client, against the specification."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time as clock
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from trio_mcp._secrets import mask_words
from trio_mcp._settings import completed
from trio_mcp.cli.exits import Exit
from trio_mcp.cli.reporting import check_writable, until_interrupted, until_stopped, write_text
from trio_mcp.cli.settings import FOR_CLIENTS, FOR_ISSUERS, FOR_SERVERS, NOT_FOR_ISSUERS, add_settings, is_given
from trio_mcp.cli.targets import target_of
from trio_mcp.cli.terminal import ProgressBar
from trio_mcp.cli.text import clean, clean_line
from trio_mcp.cli.tokens import authority_at, with_tokens
from trio_mcp.errors import TrioMcpError
from trio_mcp.http.client.parameters import HttpServerParameters

if TYPE_CHECKING:
    # At run time, these modules are imported only where they are used, because they need an extra.
    from trio_mcp.conformance.outcomes import CheckReport, Preview, Progress
    from trio_mcp.conformance.rules.model import Rule

T = TypeVar("T")

__all__ = ["needs_kit", "run", "runnable", "shown_name"]

STARTING = 2.0
"""How many seconds the program may take to start and to end, in addition to the time for the check (arbitrary)."""

EXTRA = 'this command needs Hypothesis, which is not installed: pip install "trio-mcp[testing]"'


def run(options: argparse.Namespace) -> int:
    """Check the target; return 1 if a MUST outside the baseline is broken, or 2 if the target can't be checked."""
    add_settings(options)
    if options.snapshot is not None:
        from trio_mcp.cli.snapshot import compare

        return compare(options)
    began = clock.perf_counter()
    needs_kit()
    from trio_mcp.conformance.report.json import json_text
    from trio_mcp.conformance.report.table import table

    check, preview, settings = _prepared(options)
    baseline = _baseline(options.baseline)
    if options.dry_run:
        with runnable():
            found, interruption = trio.run(_previewed, partial(preview, **settings))
        if found is not None:
            print(_plan(found, settings), end="")
        return interruption
    files = _Files(options)
    # On a machine so busy that even the imports are slow, the check is shortened, because users rely on the time that
    # they set. The delay is doubled, because starting and ending the interpreter takes about as long as the imports.
    late = max(0.0, 2 * (clock.perf_counter() - began) - STARTING)
    if (seconds := settings.get("time")) is not None:
        settings["time"] = max(seconds - late, seconds / 2)
    settings["baseline"] = baseline
    with runnable():
        report, interruption = trio.run(_checked, check, settings)
    report = attrs.evolve(report.knowing(baseline), target=shown_name(options) or report.target)
    # The report is flushed, so that it comes before any text on standard error if both go to one file.
    print(json_text(report) if options.json else table(report), end="", flush=True)
    for outcome in report.outcomes:
        # Only rules that held are reported: a rule that was not tested may still be broken, so its line in the baseline
        # may still be needed. The text goes to standard error, because standard output is for the report.
        if outcome.rule.id in baseline and outcome.status == "held":
            print(
                f"{outcome.rule.id} is in the baseline, but held this time: its line can be removed from the baseline",
                file=sys.stderr,
            )
    files.write(report)
    return interruption or report.status


def needs_kit() -> None:
    """Check that the packages needed by the conformance kit are installed.

    Raises:
        Exit: If Hypothesis is not installed.
    """
    # By default Hypothesis would keep its files in the current directory, so it is given a folder in the user's cache.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trio-mcp" / "hypothesis"
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache))
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise Exit(EXTRA, hint=False) from None


def shown_name(options: argparse.Namespace) -> str:
    """Return the target as the user wrote it, without secrets; empty for a URL, since reports show URLs themselves."""
    if options.process is not None:
        # The program's folder is left out, because it depends on the user's machine rather than on the target.
        return mask_words([Path(options.process[0]).name, *options.process[1:]])
    return "" if "://" in options.target else mask_words([options.target])


@contextlib.contextmanager
def runnable() -> Iterator[None]:
    """Turn errors that prevent a check of the target into an `Exit` with status 2."""
    # All errors lead to the same status: a target that is unreachable, does not respond or speaks another protocol was
    # not checked.
    try:
        yield
    except (TrioMcpError, ValueError, OSError) as exc:
        raise Exit(str(exc), hint=False) from None


def _baseline(path: str | None) -> dict[str, str]:
    from trio_mcp.conformance.baseline import read_baseline

    try:
        return read_baseline(path) if path else {}
    except ValueError as exc:
        raise Exit(f"--baseline: {exc}", hint=False) from None


def _prepared(options: argparse.Namespace) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    """Return the function that checks the target, the function that previews the check, and their options."""
    from trio_mcp.conformance.clients import check_client, preview_client
    from trio_mcp.conformance.credentials import credentials_for
    from trio_mcp.conformance.engine import check_server, preview_server
    from trio_mcp.conformance.options import ClientCheckOptions, ServerCheckOptions
    from trio_mcp.conformance.rules.catalogue import SIDES, select

    patterns = [each.strip() for words in options.rules or ["*"] for each in words.split(",") if each.strip()]
    side = "issuer" if options.issuers else "client" if options.client else "server"
    try:
        rules = select(patterns, *SIDES[side])
    except ValueError as exc:
        raise Exit(str(exc)) from None
    if side == "issuer":
        return _for_issuers(options, rules)
    for name in FOR_ISSUERS:
        if is_given(options, name):
            option = f"--{name.replace('_', '-')}"
            raise Exit(f"{option} is for checks of authorization servers: check --issuers {option} URL")
    kind = ClientCheckOptions if options.client else ServerCheckOptions
    given = {name: getattr(options, name) for name in ("revisions", "examples", "time", "seed", "rate")}
    given |= {"deadline": options.timeout, "rules": [rule.id for rule in rules]}
    # Options that don't apply are refused rather than ignored: otherwise the user would believe that a limit such as
    # the rate is kept.
    if options.client:
        if options.process is None:
            raise Exit("a client is given as the command that starts it: check --client -- COMMAND")
        for name in FOR_SERVERS:
            if is_given(options, name):
                raise Exit(f"--{name.replace('_', '-')} is for checks of servers, not of clients")
        given["protected"] = options.protected
    else:
        for name in FOR_CLIENTS:
            if is_given(options, name):
                raise Exit(f"--{name} is for checks of clients: check --client --{name} -- COMMAND")
        given |= {"allow_writes": options.allow_writes, "tools": tuple(options.tool)}
    # Options that are not given get their defaults from `kind`, because the defaults differ between clients and
    # servers.
    settings: Any = completed(kind, {name: value for name, value in given.items() if value is not None})
    if options.client:
        return partial(check_client, options.process), partial(preview_client, options.process), settings
    target, tokens = with_tokens(options, target_of(options))
    settings |= tokens
    try:
        credentials_for(tokens, None)
    except ValueError as exc:
        raise Exit(str(exc).replace("auth_", "--auth-"), hint=False) from None
    port = options.auth_server
    return partial(_with, port, check_server, target), partial(_with, port, preview_server, target), settings


def _for_issuers(
    options: argparse.Namespace, rules: Sequence[Rule]
) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    from trio_mcp.conformance.issuers import check_issuers

    for name in NOT_FOR_ISSUERS:
        if is_given(options, name):
            shown = "revision" if name == "revisions" else name.replace("_", "-")
            raise Exit(f"--{shown} says nothing about authorization servers (--issuers)")
    if options.client_id is not None and not options.sign_in:
        raise Exit("--client-id is used only to sign in: add --sign-in")
    target = None if options.target is None else target_of(options)
    if not isinstance(target, HttpServerParameters):
        raise Exit("--issuers needs the http: or https: URL of a protected server, which names them")
    settings = {"rules": [rule.id for rule in rules], "sign_in": options.sign_in, "client_id": options.client_id}
    return partial(check_issuers, target.url), check_issuers, settings


async def _with(port: int | None, function: Callable[..., Awaitable[T]], target: Any, **settings: Any) -> T:
    """Call a function with the authorization server that the command line asks for."""
    async with authority_at(port) as authority:
        return await function(target, **{**settings, **authority})


async def _previewed(preview: Callable[[], Awaitable[Preview]]) -> tuple[Preview | None, int]:
    """Find out what a check would do; Ctrl-C or SIGTERM ends the preview and the target."""
    return await until_interrupted(lambda stop: until_stopped(stop.wait, preview), ProgressBar(sys.stderr))


async def _checked(check: Callable[..., Awaitable[CheckReport]], settings: dict[str, Any]) -> tuple[CheckReport, int]:
    """Run a check; Ctrl-C or SIGTERM ends the check early, with what has been found by then."""
    bar = ProgressBar(sys.stderr)

    def show(progress: Progress) -> None:
        if bar.wanted:
            broken = f", {progress.broken} broken" if progress.broken else ""
            bar.draw(progress.examples, progress.of, f"{progress.requests} requests{broken}")

    return await until_interrupted(lambda stop: check(**settings | {"on_progress": show, "stop": stop}), bar)


# --- what is written --------------------------------------------------------------------------------------------------


class _Files:
    """Writes the files that the command line names; a problem with a file is reported before the target is checked."""

    def __init__(self, options: argparse.Namespace) -> None:
        from trio_mcp.conformance.report import form_of

        try:
            self._forms = {path: form_of(path) for path in options.report}
        except ValueError as exc:
            raise Exit(f"--report: {exc}") from None
        self._baseline = options.write_baseline
        for path in (*self._forms, *filter(None, [self._baseline])):
            check_writable(path)
        # By default, the replay files go into the first report's folder, because the report gives their names without a
        # folder.
        self._replays = options.replays or (Path(options.report[0]).parent if options.report else None)

    def write(self, report: CheckReport) -> None:
        """Write all the files, and print a command that reproduces a failure."""
        from trio_mcp.conformance.baseline import baseline_text
        from trio_mcp.conformance.plans.plan_files import write_plan_files

        for path, form in self._forms.items():
            write_text(path, form(report))
        if self._baseline:
            found = [(each.rule.id, each.failure.problem if each.failure else "") for each in report.broken]
            write_text(self._baseline, baseline_text(found))
        if self._replays is not None and any(each.failure for each in report.broken):
            try:
                written = write_plan_files(report, self._replays)
            except OSError as exc:
                raise Exit(f"can't write to {self._replays}: {exc.strerror}", hint=False) from None
            if written:  # there is a file only for a failure of a server
                name = clean(str(written[0] if len(written) == 1 else Path(self._replays, "RULE.replay.json")))
                print(f"To see a failure again: trio-mcp replay {name} TARGET", file=sys.stderr)


# --- --dry-run --------------------------------------------------------------------------------------------------------


def _plan(preview: Preview, settings: dict[str, Any]) -> str:
    lines = ["{examples} examples, {time:g} seconds at most, seed {seed}".format_map(settings)]
    if (rate := settings.get("rate")) is not None:
        lines[0] += f", {rate:g} requests a second at most"
    for facts in preview.facts:
        info = facts.server_info
        name = clean_line(f"{info.get('name', 'a server without a name')} {info.get('version', '')}")
        lines.append(f"{name}, over {facts.transport} in revision {facts.revision}")
        lines += _listed("  calls the tools", sorted(facts.callable_tools))
        lines += [f"  {clean_line(note)}" for note in facts.skipped]
        lines.append(f"  reads {len(facts.resources)} resources, gets {len(facts.prompts)} prompts")
        lines += _listed("  makes the moves", preview.moves.get(facts.revision, ()))
    if not preview.facts:
        for revision, turns in preview.moves.items():
            lines += _listed(f"serves revision {revision}, with the turns", turns)
    checkable = [rule for rule in preview.rules if rule.id not in preview.not_checkable]
    lines.append(f"judges {len(checkable)} rules")
    lines += [f"  {rule.id}" for rule in checkable]
    if preview.not_checkable:
        lines.append(f"can't check {len(preview.not_checkable)} rules")
        lines += [f"  {id_}: {clean_line(why)}" for id_, why in preview.not_checkable.items()]
    return "\n".join(lines) + "\n"


def _listed(head: str, names: Any) -> list[str]:
    return [f"{head} {', '.join(map(clean_line, names))}"] if names else []
