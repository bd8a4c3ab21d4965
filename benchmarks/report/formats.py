"""Reports of the figures: as text, as Markdown and as JSON."""

from __future__ import annotations

from typing import Any

from benchmarks.measure.samples import Comparison, Group, Spread, Target

FORMAT = 2  # of the JSON: raised when a reader of the one before would not understand it


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _range(spread: Spread) -> str:
    return f"{number(spread.low)} to {number(spread.high)}"


def verdict_of(target: Target | None, value: float) -> str:
    if target is None:
        return ""
    return f"{target.relation} {target.bound:g}: {'met' if target.met(value) else 'MISSED'}"


def _tables(group: Group) -> list[list[list[str]]]:
    """Return the table of values, then that of ratios; the first row of each is its heading."""
    values = [["contender", f"median {group.unit}", "min to max", "target"]]
    for name, samples in group.samples.items():
        spread = Spread.of(samples)
        verdict = verdict_of(group.value_targets.get(name), spread.median)
        values.append([name, number(spread.median), _range(spread), verdict])
    ratios = [["paired ratio", "median", "min to max", "target"]]
    for comparison in group.comparisons:
        spread = Spread.of(group.ratios(comparison))
        title = f"{comparison.left} / {comparison.right}"
        ratios.append([title, f"{spread.median:.2f}", _range(spread), verdict_of(comparison.target, spread.median)])
    return [table for table in (values, ratios) if len(table) > 1]


def _without_empty_column(table: list[list[str]]) -> list[list[str]]:
    """Drop the last column if it has nothing but a heading."""
    return table if any(row[-1] for row in table[1:]) else [row[:-1] for row in table]


def text_table(table: list[list[str]]) -> list[str]:
    """Return the lines of a table whose first row is its heading."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def markdown_table(table: list[list[str]], *, texts: int = 1) -> list[str]:
    """Return the Markdown lines of a table whose first row is its heading, and whose first columns are texts."""
    heading, *rows = (f"| {' | '.join(row)} |" for row in table)
    return [heading, f"{'|---' * texts}{'|---:' * (len(table[0]) - texts)}|", *rows]


def as_text(group: Group) -> str:
    lines = [f"== {group.scenario}: {group.case} =="]
    for table in map(_without_empty_column, _tables(group)):
        lines += [*text_table(table), ""]
    lines += [f"  {note}" for note in group.notes]
    return "\n".join(lines).rstrip() + "\n"


def as_markdown(groups: list[Group], around: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in around["versions"].items())
    lines = [
        "# Benchmark results",
        "",
        "Written by `python -m benchmarks --markdown FILE`; README.md beside this file says what each figure means.",
        "",
        f"- Measured: {around['date']}, load average {around['load']} at the start "
        f"and {around['load_at_end']} at the end, this run's own processes included",
        f"- Machine: {around['cpus']} CPUs, {around['platform']}, Python {around['python']}",
        f"- Versions: {versions}",
        f"- Interleaved rounds: {around['rounds']} of {around['seconds']:g} s; "
        f"{around['short_rounds']} single events for start-up and import",
    ]
    if around["load"] > around["cpus"]:
        lines.append(
            "- Other programs kept the CPUs busy: read the ratios, whose samples suffered alike, not the values"
        )
    for group in groups:
        lines += ["", f"## {group.scenario}: {group.case}"]
        for table in map(_without_empty_column, _tables(group)):
            lines += ["", *markdown_table(table)]
        if group.notes:
            lines += ["", "```text", *group.notes, "```"]
    return "\n".join(lines) + "\n"


def as_json(groups: list[Group], around: dict[str, Any]) -> dict[str, Any]:
    """Return all samples, so that other statistics can be computed from them."""
    return {
        "format": FORMAT,
        **around,
        "groups": [
            {
                "scenario": group.scenario,
                "case": group.case,
                "unit": group.unit,
                "samples": group.samples,
                "targets": {label: [target.relation, target.bound] for label, target in group.value_targets.items()},
                "ratios": [
                    {
                        "left": comparison.left,
                        "right": comparison.right,
                        "values": group.ratios(comparison),
                        "median": Spread.of(group.ratios(comparison)).median,
                        "about": comparison.subject,
                        "better": group.better(comparison),
                        "target": comparison.target and [comparison.target.relation, comparison.target.bound],
                    }
                    for comparison in group.comparisons
                ],
                "notes": group.notes,
            }
            for group in groups
        ],
    }


def groups_of(report: dict[str, Any]) -> list[Group]:
    """Return the groups that `as_json` has put into a report."""
    return [
        Group(
            group["scenario"],
            group["case"],
            group["unit"],
            group["samples"],
            [
                Comparison(
                    ratio["left"],
                    ratio["right"],
                    ratio["target"] and Target(*ratio["target"]),
                    about_right=ratio["about"] == ratio["right"],
                )
                for ratio in group["ratios"]
            ],
            {label: Target(*target) for label, target in group["targets"].items()},
            group["notes"],
        )
        for group in report["groups"]
    ]
