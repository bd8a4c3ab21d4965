"""``python -m benchmarks [SCENARIO ...]``: run scenarios, print their tables, and write the figures on request."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING

from . import _report
from ._options import Options, Parser, checkout, peer_installed, whole_number
from ._processes import ProcessFailed
from ._wire import WrongAnswer
from .scenarios import SCENARIOS

if TYPE_CHECKING:
    from ._measure import Group


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and up to 3600")
    return value


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
    parser.add_argument("--seconds", type=_seconds, help="length of a throughput sample (default 1)")
    parser.add_argument("--rounds", type=whole_number, help="interleaved samples per contender (default 5)")
    parser.add_argument(
        "--quick", action="store_true", help="a look at every scenario: small cases, by default 1 round of 0.05 s"
    )
    parser.add_argument("--before", type=checkout, metavar="CHECKOUT", help="add the HTTP server of another checkout")
    parser.add_argument("--explain", action="store_true", help="add the breakdown of imports to startup")
    return parser.parse_with_files(arguments)


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios that `arguments` choose. Return 0, or 1 if a contender failed or gave a wrong answer."""
    chosen = _parse(arguments)
    seconds = chosen.seconds or (0.05 if chosen.quick else 1.0)
    rounds = chosen.rounds or (1 if chosen.quick else 5)
    # A run this short can't be meant as a measurement, so leave out the large cases, too.
    quick = chosen.quick or (rounds == 1 and seconds < 0.2)
    options = Options(seconds, rounds, quick, chosen.explain, chosen.before, _progress)
    around = _report.surroundings(options)
    if not peer_installed():
        print("the official SDK (mcp) is not installed: rows against it are left out", file=sys.stderr)
    groups: list[Group] = []
    try:
        for name in dict.fromkeys(chosen.scenarios or SCENARIOS):
            for group in SCENARIOS[name](options):
                groups.append(group)
                print(_report.as_text(group), flush=True)
    except (ProcessFailed, WrongAnswer) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("benchmarks: interrupted", file=sys.stderr)
        return 130
    around["load_at_end"] = _report.load_average()
    if chosen.json:
        chosen.json.write_text(json.dumps(_report.as_json(groups, around), indent=1) + "\n")
    if chosen.markdown:
        chosen.markdown.write_text(_report.as_markdown(groups, around))
    return 0


if __name__ == "__main__":
    sys.exit(main())
