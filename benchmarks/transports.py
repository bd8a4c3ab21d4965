"""Measure the transports and write the figures down: ``python -m benchmarks.transports``, some four minutes.

It runs the scenario ``transports``, and puts the medians into the table of docs/how-to/choosing_a_transport.md.
``--report`` also keeps the range of each figure.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import __main__
from benchmarks.measure.processes import ROOT
from benchmarks.measure.throughput import COST, MEDIAN, TAIL
from benchmarks.options import Parser, duration, whole_number
from benchmarks.report.formats import markdown_table, number
from benchmarks.scenarios.transports import CASES

PAGE = ROOT / "docs" / "how-to" / "choosing_a_transport.md"
BEGIN, END = "<!-- figures: written by `python -m benchmarks.transports` -->", "<!-- end of the figures -->"

RATIOS = "How many times as fast the first is as the second, by calls a second and by CPU time:"


def tables(report: dict[str, Any]) -> str:
    """Return the medians of a report in JSON as two Markdown tables: the transports, and the ratios."""
    groups = {group["case"].removeprefix("add(a, b), "): group for group in report["groups"]}

    def median(case: str, label: str) -> str:
        return number(statistics.median(groups[case]["samples"][label])) if case in groups else ""

    one, many = CASES.values()
    rows = [[
        "one tool, two numbers", "calls a second, one after the other", "a call takes, in µs: median, 99 %",
        "µs of the server's CPU time", "calls a second, 64 in flight", "µs of the server's CPU time",
    ]]  # fmt: skip
    for label in groups[one]["samples"]:
        took = f"{median(f'{one}: {MEDIAN}', label)}, {median(f'{one}: {TAIL}', label)}"
        costs = [median(f"{case}: {COST.format('server')}", label) for case in (one, many)]
        rows.append([label, median(one, label), took, costs[0], median(many, label), costs[1]])
    ratios = [
        ["", "calls a second, one after the other", "64 in flight", "CPU time, one after the other", "64 in flight"]
    ]
    for clients, of in ("", "server"), ("client, ", "client"):
        cases = [f"{clients}{case}" for case in (one, many)]
        cases += [f"{case}: {COST.format(of)}" for case in cases]
        for place, ratio in enumerate(groups[cases[0]]["ratios"]):
            values = [f"{groups[case]['ratios'][place]['median']:.2f}" if case in groups else "" for case in cases]
            ratios.append([f"{ratio['left']} / {ratio['right']}", *values])
    return "\n".join([*markdown_table(rows), "", RATIOS, "", *markdown_table(ratios)])


def put_into(page: str, text: str) -> str:
    """Return a page with another text between its marks."""
    return re.sub(f"(?s)(?<={re.escape(BEGIN)}).*(?={re.escape(END)})", lambda _: f"\n\n{text}\n\n", page)


def main(arguments: list[str] | None = None) -> int:
    """Run it, and return the exit status."""
    parser = Parser(prog="python -m benchmarks.transports", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=whole_number, default=25, help="interleaved samples (default 25)")
    parser.add_argument("--seconds", type=duration, default=0.5, help="length of a sample (default 0.5)")
    parser.add_argument("--report", type=Path, help="a file for the whole report, as Markdown (default: none)")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that has the table (default that of docs)")
    chosen = parser.parse_args(arguments)
    if not chosen.page.is_file():
        parser.error(f"{chosen.page}: there is no such file")
    with tempfile.TemporaryDirectory() as directory:
        samples = Path(directory, "samples.json")
        length = ["--seconds", str(chosen.seconds), "--rounds", str(chosen.rounds)]
        files = ["--json", str(samples), *(("--markdown", str(chosen.report)) if chosen.report else ())]
        if status := __main__.main(["transports", *length, *files]):
            return status
        chosen.page.write_text(put_into(chosen.page.read_text(), tables(json.loads(samples.read_text()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
