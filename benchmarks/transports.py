"""Measure the transports and write the figures down: ``python -m benchmarks.transports``, some four minutes.

It runs the scenario ``transports``, writes its report to transports.md beside this file, and puts the medians into the
table of docs/how-to/choosing_a_transport.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import __main__
from ._options import whole_number
from ._processes import ROOT
from ._report import markdown_table, number

REPORT = ROOT / "benchmarks" / "transports.md"
PAGE = ROOT / "docs" / "how-to" / "choosing_a_transport.md"
BEGIN, END = "<!-- figures: written by `python -m benchmarks.transports` -->", "<!-- end of the figures -->"

RATE, MEDIAN, TAIL, COST = "calls/s", "the median", "the 99th percentile", "CPU time of the server"


def tables(report: dict[str, Any]) -> str:
    """Return the medians of a report in JSON as two Markdown tables: the transports, and the ratios."""
    cases: dict[str, dict[str, dict[str, float]]] = {}
    ratios = [["ratio of calls a second", "one after the other", "64 in flight"]]
    found: dict[str, list[str]] = {}
    for group in report["groups"]:
        case, _, what = group["case"].removeprefix("add(a, b), ").partition(": ")
        medians = {label: statistics.median(values) for label, values in group["samples"].items()}
        cases.setdefault(case, {})[what.removeprefix("time of a call at ")] = medians
        if not what:
            for ratio in group["ratios"]:
                found.setdefault(f"{ratio['left']} / {ratio['right']}", []).append(f"{ratio['median']:.2f}")
    sequential, parallel = (case for case in cases if not case.startswith("client"))
    heading = ["", "calls a second, one after the other", "a call takes: median, 99 %", "CPU time of the server"]
    rows = [[*heading, "calls a second, 64 in flight", "CPU time of the server"]]
    for label, rate in cases[sequential][""].items():
        one, many = cases[sequential], cases[parallel]
        took = f"{number(one[MEDIAN][label])}, {number(one[TAIL][label])} µs"
        costs = [f"{number(case[COST][label])} µs" if COST in case else "" for case in (one, many)]
        rows.append([label, number(rate), took, costs[0], number(many[""][label]), costs[1]])
    ratios += [[label, *values] for label, values in found.items()]
    return "\n".join([*markdown_table(rows), "", *markdown_table(ratios)])


def put_into(page: str, text: str) -> str:
    """Return a page with another text between its marks."""
    return re.sub(f"(?s)(?<={re.escape(BEGIN)}).*(?={re.escape(END)})", lambda _: f"\n\n{text}\n\n", page)


def main(arguments: list[str] | None = None) -> int:
    """Run it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transports", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=whole_number, default=25, help="samples of half a second (default 25)")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the report goes (default transports.md)")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that has the table (default that of docs)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        samples = Path(directory, "samples.json")
        files = ["--json", str(samples), "--markdown", str(chosen.report)]
        if status := __main__.main(["transports", "--seconds", "0.5", "--rounds", str(chosen.rounds), *files]):
            return status
        chosen.page.write_text(put_into(chosen.page.read_text(), tables(json.loads(samples.read_text()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
