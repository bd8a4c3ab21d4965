"""``python -m benchmarks [SCENARIO ...]``: run scenarios, print their tables, and write the figures on request."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.load.wire import WrongAnswer
from benchmarks.measure.checkouts import prepare
from benchmarks.measure.processes import ProcessFailed
from benchmarks.options import Options, Parser, checkout, duration, peer_installed, whole_number
from benchmarks.report.earlier import HEADING, compare, earlier, verdict
from benchmarks.report.formats import as_json, as_markdown, as_text, text_table
from benchmarks.report.machine import load_average, surroundings, version_of
from benchmarks.report.plan import Plan, about
from benchmarks.scenarios import SCENARIOS

if TYPE_CHECKING:
    from benchmarks.measure.samples import Group


# Seconds of a sample, and rounds. Six rounds are the fewest that give a median an interval of 95 %.
FULL, QUICK, SMOKE = (0.4, 6), (0.15, 3), (0.05, 1)


def _scenario(text: str) -> str:
    if text not in SCENARIOS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a scenario: choose from {', '.join(SCENARIOS)}")
    return text


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks",
        description="Measure trio_mcp against the official SDK and a bare limit, interleaved in one run.",
    )
    parser.add_argument(
        "scenarios", nargs="*", type=_scenario, metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all by default"
    )
    parser.add_argument("--seconds", type=duration, help="length of a throughput sample (default 0.4)")
    parser.add_argument("--rounds", type=whole_number, help="interleaved samples per contender (default 6)")
    shorter = parser.add_mutually_exclusive_group()
    shorter.add_argument(
        "--quick", action="store_true", help="the main contenders and smaller cases, by default 3 rounds of 0.15 s"
    )
    shorter.add_argument(
        "--smoke", action="store_true", help="only see that everything runs: as --quick, with 1 round of 0.05 s"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="of memory, stdio, http, http-client, http-both and startup: only contenders with this in their names; "
        "may be repeated",
    )
    parser.add_argument("--before", type=checkout, metavar="CHECKOUT", help="add another checkout as a contender")
    parser.add_argument("--against", type=earlier, metavar="FILE", help="say what is worse than in this earlier --json")
    parser.add_argument("--explain", action="store_true", help="add the breakdown of imports to startup")
    parser.add_argument(
        "--install", action="store_true", help="install the TypeScript SDK and FastMCP as contenders, and exit"
    )
    return parser.parse_with_files(arguments)


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)


def _install() -> int:
    try:
        peers.install(_say)
    except peers.InstallError as error:
        _say(str(error))
        return 1
    _say(f"{' and '.join((peers.TYPESCRIPT, peers.FASTMCP))} are installed")
    return 0


def _lengths(chosen: argparse.Namespace) -> tuple[float, int, bool, float]:
    """Return the length of a sample, the rounds, whether it is quick, and the run's length relative to its default."""
    usual = SMOKE if chosen.smoke else QUICK if chosen.quick else FULL
    wanted = chosen.seconds or usual[0], chosen.rounds or usual[1]
    # A run this short can't be meant as a measurement, so leave out the large cases, too.
    quick = chosen.quick or chosen.smoke or (wanted[1] == 1 and wanted[0] < 0.2)
    # A sample takes some time beside the one that it is given, and there is one more to warm up.
    scale, whole = ((each[0] + 0.1) * (each[1] + 1) for each in (wanted, QUICK if quick else FULL))
    return *wanted, quick, scale / whole


def _run(chosen: argparse.Namespace, stage: Path) -> None:
    """Run the scenarios, and write the reports."""
    seconds, rounds, quick, scale = _lengths(chosen)
    before = prepare(stage / "before", chosen.before) if chosen.before else None
    options = Options(seconds, rounds, quick, chosen.explain, before, _progress, tuple(chosen.only))
    around = surroundings(options)
    if chosen.before:
        around["versions"]["before"] = version_of(chosen.before)
    if not peer_installed():
        _say("the official SDK (mcp) is not installed: rows against it are left out")
    if missing := peers.missing():
        _say(f"rows against {' and '.join(missing)} are left out: python -m benchmarks --install makes them available")
    names = list(dict.fromkeys(chosen.scenarios or SCENARIOS))
    plan = Plan(names, quick=quick, scale=scale)
    _say(f"{len(names)} {'scenario' if len(names) == 1 else 'scenarios'}, {about(plan.left())} on a quiet machine")
    groups: list[Group] = []
    for place, name in enumerate(names, 1):
        for group in SCENARIOS[name](options):
            groups.append(group)
            print(as_text(group), flush=True)
        plan.done(name)
        if place < len(names):
            _say(f"{name} is done, {place} of {len(names)}: {about(plan.left())} to go")
    around["load_at_end"] = load_average()
    report = as_json(groups, around)
    if chosen.against:
        rows = compare(chosen.against, report)
        print("\n".join(text_table([HEADING, *(row.cells() for row in rows)])))
        print(f"  {verdict(rows, chosen.against)}")
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    if chosen.markdown:
        chosen.markdown.write_text(as_markdown(groups, around))


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios that `arguments` choose. Return 0, or 1 if a contender failed or gave a wrong answer."""
    chosen = _parse(arguments)
    if chosen.install:
        return _install()
    try:
        with tempfile.TemporaryDirectory() as directory:
            _run(chosen, Path(directory).resolve())
    except (ProcessFailed, WrongAnswer) as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
