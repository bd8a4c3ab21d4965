"""Write down the figures of a run: ``python -m benchmarks.publish REPORT.json``.

From the report that ``python -m benchmarks --json`` has written come results.json beside this file, the tables of
docs/performance.md, and its pictures in docs/images/performance. ``--add`` puts only the scenarios of the report into
them, beside those that are there. ``--tables`` prints every figure of a report instead.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from benchmarks.measure.processes import ROOT
from benchmarks.measure.samples import Spread
from benchmarks.options import Parser
from benchmarks.report import pictures
from benchmarks.report.earlier import earlier
from benchmarks.report.formats import as_markdown, groups_of, markdown_table, number, verdict_of

REPORT = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images" / "performance"
BEGIN, END = "<!-- figures: written by `python -m benchmarks.publish` -->", "<!-- end of the figures -->"


def added(report: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a report with the scenarios of another run, in place of those that it has of them."""
    run = {key: value for key, value in more.items() if key != "groups"}
    names = dict.fromkeys(group["scenario"] for group in more["groups"])
    kept = [group for group in report["groups"] if group["scenario"] not in names]
    runs = {**report.get("runs", {}), **dict.fromkeys(names, run)}
    return {**report, "runs": runs, "groups": [*kept, *more["groups"]]}


def goals(report: dict[str, Any]) -> str:
    """Return everything that has a target, with what was measured, as Markdown: an overview, and a table a scenario."""
    scenarios: dict[str, list[list[str]]] = {}
    notes: dict[str, list[str]] = {}
    for group in groups_of(report):
        rows = scenarios.setdefault(group.scenario, [])
        notes.setdefault(group.scenario, []).extend(f"- {group.case}: {note}" for note in group.notes)
        for comparison in group.comparisons:
            if comparison.target is not None:
                spread = Spread.of(group.ratios(comparison))
                what = f"{comparison.left} / {comparison.right}"
                rows.append(_row(group.case, what, spread, "", verdict_of(comparison.target, spread.median)))
        for label, target in group.value_targets.items():
            spread = Spread.of(group.samples[label])
            rows.append(_row(group.case, label, spread, f" {group.unit}", verdict_of(target, spread.median)))
    overview = [["scenario", "goals", "met"]]
    tables = []
    for scenario, rows in scenarios.items():
        if rows:
            met = sum(row[-1].endswith("met") for row in rows)
            overview.append([scenario, str(len(rows)), str(met)])
            table = "\n".join(markdown_table([["case", "what", "median", "range", "goal"], *rows], texts=2))
            summary = f"<summary>{scenario}: {met} of {len(rows)} goals met</summary>"
            run = [run_of(report["runs"][scenario])] if scenario in report.get("runs", {}) else []
            parts = [summary, *run, table, *(["\n".join(notes[scenario])] if notes[scenario] else [])]
            text = "\n\n".join(parts)
            tables.append(f"<details>{text}\n\n</details>")
    return "\n\n".join(["\n".join(markdown_table(overview)), *tables])


def _row(case: str, what: str, spread: Spread, unit: str, verdict: str) -> list[str]:
    return [case, what, f"{number(spread.median)}{unit}", f"{number(spread.low)} to {number(spread.high)}", verdict]


def run_of(report: dict[str, Any]) -> str:
    """Return where and when the figures were measured, in a sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return (
        f"Measured on {report['date']}: {report['cpus']} CPUs, {report['platform']}, Python {report['python']}; load"
        f" average {report['load']} at the start, {report['load_at_end']} at the end; {report['rounds']} interleaved"
        f" rounds of {report['seconds']:g} s; {versions}."
    )


def put_into(page: str, report: dict[str, Any]) -> str:
    """Return a page with the figures of a report between its marks."""
    text = f"{run_of(report)}\n\n{goals(report)}"
    return re.sub(f"(?s)(?<={re.escape(BEGIN)}).*(?={re.escape(END)})", lambda _: f"\n\n{text}\n\n", page)


def main(arguments: list[str] | None = None) -> int:
    """Write everything, or print the tables, and return the exit status."""
    parser = Parser(prog="python -m benchmarks.publish", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=earlier, help="what `python -m benchmarks --json` has written")
    parser.add_argument("--add", action="store_true", help="replace only the scenarios of this report")
    parser.add_argument("--tables", action="store_true", help="print every figure as Markdown, and write nothing")
    chosen = parser.parse_args(arguments)
    report = added(earlier(str(REPORT)), chosen.report) if chosen.add else chosen.report
    if chosen.tables:
        print(as_markdown(groups_of(report), report), end="")
        return 0
    try:
        for file in pictures.draw_all(report, IMAGES):
            print(file.relative_to(ROOT), file=sys.stderr)
    except ModuleNotFoundError:
        parser.error("matplotlib is not installed: pip install -e '.[benchmarks]'")
    REPORT.write_text(json.dumps(report, separators=(",", ":")) + "\n")
    PAGE.write_text(put_into(PAGE.read_text(), report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
