"""The figures of a report as pictures: four SVGs of each, for light pages and dark ones, on wide screens and on phones.

This needs matplotlib, which the extra ``benchmarks`` brings.
"""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report.formats import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Report = dict[str, Any]
Points = list[tuple[float, float]]
"""The points of a line, from left to right."""

# Furo's own backgrounds, so that a picture lies on the page without a frame. The colours of the contenders can be told
# apart by people who don't see red or green (after Okabe and Ito), and keep a contrast of 3:1 to the page.
THEMES: dict[str, dict[str, str]] = {
    "light": {
        "page": "#ffffff", "text": "#3b4856", "line": "#c8d0da",
        "trio_mcp": "#0b6e4f", "official SDK": "#b35900", "FastMCP": "#8a4b9a", "TypeScript v1": "#6a9fc4",
        "TypeScript v2": "#0072b2", "bare": "#8b97a6",
    },
    "dark": {
        "page": "#131416", "text": "#c3ccd8", "line": "#3a4350",
        "trio_mcp": "#3ddc97", "official SDK": "#ffa04d", "FastMCP": "#d39be0", "TypeScript v1": "#2f7fb5",
        "TypeScript v2": "#56b4e9", "bare": "#7b8ba3",
    },
}  # fmt: skip

# The contender that a label of a report belongs to, by how the label begins.
CONTENDERS = {
    "ours": "trio_mcp",
    "official": "official SDK",
    "FastMCP": "FastMCP",
    "TypeScript v1": "TypeScript v1",
    "TypeScript v2": "TypeScript v2",
    "bare": "bare",
}


@dataclass(frozen=True)
class Bars:
    """A panel with a bar for each contender.

    Attributes:
        scenario: The scenario of the figures.
        case: Their case.
        title: What stands above the panel.
        unit: The unit of the figures, which stands after each.
        labels: The rows of the table that are drawn, with the names that they get.
    """

    scenario: str
    case: str
    title: str
    unit: str
    labels: dict[str, str]

    def draw(self, report: Report, axes: Axes, theme: dict[str, str]) -> bool:
        """Draw the panel; return whether the report has anything for it."""
        samples = _samples(report, self.scenario, self.case)
        rows = [
            (name, statistics.median(samples[label]), label) for label, name in self.labels.items() if label in samples
        ]
        if not rows:
            return False
        rows.sort(key=lambda row: row[1])
        colours = [theme[_contender(label)] for _, _, label in rows]
        bars = axes.barh([name for name, _, _ in rows], [value for _, value, _ in rows], color=colours, height=0.72)
        texts = [f" {number(value)} {self.unit}" for _, value, _ in rows]
        axes.bar_label(bars, texts, color=theme["text"], fontsize=9)
        axes.set_xlim(0, rows[-1][1] * 1.5)  # room for the text of the longest bar
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(self.title, loc="left", fontsize=10.5, color=theme["text"])
        return True


@dataclass(frozen=True)
class Lines:
    """A panel with a line for each contender, over a number that its labels end with, on a logarithmic axis.

    Attributes:
        scenario: The scenario of the figures.
        case: Their case.
        title: What stands above the panel.
        over: The pattern of the end of a label, whose group is the number.
        across: What that number is.
        shown: Returns a figure with its unit.
        labels: The beginnings of labels that are drawn, with the names that they get.
        from_zero: Whether the figures are on an axis that begins with zero, and not on a logarithmic one.
    """

    scenario: str
    case: str
    title: str
    over: re.Pattern[str]
    across: str
    shown: Callable[[float], str]
    labels: dict[str, str]
    from_zero: bool = False

    def draw(self, report: Report, axes: Axes, theme: dict[str, str]) -> bool:
        """Draw the panel; return whether the report has anything for it."""
        samples = _samples(report, self.scenario, self.case)
        places: set[float] = set()
        for beginning, name in self.labels.items():
            points = sorted(self._points(samples, beginning))
            if not points:
                continue
            places.update(place for place, _ in points)
            axes.plot(
                *zip(*points, strict=True), marker="o", markersize=4, color=theme[_contender(beginning)], label=name
            )
        if not places:
            return False
        axes.set_xscale("log", base=2)
        if self.from_zero:
            axes.set_ylim(bottom=0)
        else:
            axes.set_yscale("log")
        axes.set_xticks(sorted(places))
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter(lambda value, _: self.shown(value))
        axes.minorticks_off()
        axes.set_xlabel(self.across, color=theme["text"])
        axes.grid(color=theme["line"], linewidth=0.6)
        axes.spines[:].set_color(theme["line"])
        axes.tick_params(colors=theme["text"], length=0)
        axes.set_title(self.title, loc="left", fontsize=10.5, color=theme["text"])
        axes.legend(frameon=False, labelcolor=theme["text"], fontsize=9)
        return True

    def _points(self, samples: dict[str, list[float]], beginning: str) -> Iterator[tuple[float, float]]:
        for label, values in samples.items():
            found = self.over.search(label)
            if found is not None and label[: found.start()] == beginning:
                yield float(found[1]), statistics.median(values)


Panel = Bars | Lines

PHONE = 4.2
"""Inches of a picture for phones. Its words are a bit smaller there than the text beside it, and nothing is cut off."""

SIZES = {"": 2, "-narrow": 1}
"""How many panels stand side by side, by what the name of a file gets: wide screens, and phones."""


def _time(microseconds: float) -> str:
    for size, unit in (1e6, "s"), (1e3, "ms"):
        if microseconds >= size:
            return f"{microseconds / size:,g} {unit}"
    return f"{microseconds:,g} µs"


def _samples(report: Report, scenario: str, case: str) -> dict[str, list[float]]:
    for group in report["groups"]:
        if (group["scenario"], group["case"]) == (scenario, case):
            samples: dict[str, list[float]] = group["samples"]
            return samples
    return {}


def _contender(label: str) -> str:
    return next(name for beginning, name in CONTENDERS.items() if label.startswith(beginning))


@dataclass(frozen=True)
class Picture:
    """Panels side by side, row by row.

    Attributes:
        title: What the picture shows, for those who don't see it.
        panels: Its panels; those that the report has nothing for are left out.
        width: Inches of each panel.
        height: Inches of each panel.
    """

    title: str
    panels: list[Panel]
    width: float = 4.9
    height: float = 1.6

    def draw(self, report: Report, theme: dict[str, str], columns: int = 2) -> Figure | None:
        """Return the picture, with so many panels side by side; None if the report has nothing for it."""
        from matplotlib.figure import Figure

        present = [panel for panel in self.panels if _present(panel, report)]
        if not present:
            return None
        columns = min(columns, len(present))
        rows = -(-len(present) // columns)
        size = self.width * columns if columns > 1 else PHONE, self.height * rows
        figure = Figure(size, layout="constrained", facecolor=theme["page"])
        for place, panel in enumerate(present):
            axes = figure.add_subplot(rows, columns, place + 1, facecolor=theme["page"])
            panel.draw(report, axes, theme)
            for text in axes.get_yticklabels():
                text.set_color(theme["text"])
        return figure


def _present(panel: Panel, report: Report) -> bool:
    samples = _samples(report, panel.scenario, panel.case)
    return any(label.startswith(beginning) for label in samples for beginning in panel.labels)


def _server(ours: str) -> dict[str, str]:
    return {
        ours: "trio_mcp",
        "TypeScript v2, modern": "TypeScript v2",
        "TypeScript v1, legacy": "TypeScript v1",
        "official, modern": "official SDK",
        "official on uvicorn, modern, JSON": "official SDK",
        "FastMCP, modern": "FastMCP",
        "FastMCP on uvicorn, modern, JSON": "FastMCP",
    }


RATE = "calls/s"
MEMORY = {
    "ours, modern, encoded": "trio_mcp",
    "official, modern, encoded": "official SDK",
    "bare Trio loop, encoded": "bare Trio loop",
}
STDIO = _server("ours, modern") | {"bare Trio loop": "bare Trio loop"}
HTTP = _server("ours on h11, modern") | {"ours on httptools, modern": "trio_mcp, httptools"}
CLIENT = _server("ours, modern") | {"ours with httptools, modern": "trio_mcp, httptools"}
LOAD = {
    "ours": "trio_mcp",
    "official": "official SDK",
    "TypeScript v2": "TypeScript v2",
    "bare Trio loop": "bare Trio loop",
}
IN_FLIGHT = re.compile(r", (\d+) in flight$")
MIB = re.compile(r", (\d+) MiB$")
PAYLOADS = {"ours": "trio_mcp", "official": "official SDK", "bare loop": "bare loop"}
SESSIONS = {"ours": "trio_mcp", "official on uvicorn": "official SDK"}
PEAKS = {"ours": "trio_mcp", "official": "official SDK", "bare Trio loop": "bare Trio loop"}


def _under_load(transport: str, case: str, title: str) -> Lines:
    title = f"{transport} server: {title}"
    return Lines("load", f"{transport}: {case}", title, IN_FLIGHT, "calls in flight", _time, LOAD)


def _of_payloads(transport: str) -> Lines:
    case, title = f"{transport}, CPU time of the server", f"{transport}: CPU time of the server per MiB of text"
    return Lines("payloads", case, title, MIB, "MiB in one message", lambda value: f"{value:g} ms", PAYLOADS, True)


PICTURES: dict[str, Picture] = {
    "throughput": Picture(
        "Calls per second of one tool, by transport and library",
        [
            Bars("stdio", "add(a, b), sequential", "stdio server, one call after the other", RATE, STDIO),
            Bars("stdio", "add(a, b), 64 in flight", "stdio server, 64 calls in flight", RATE, STDIO),
            Bars("http", "add(a, b), one connection", "HTTP server, one connection", RATE, HTTP),
            Bars("http", "add(a, b), 32 connections", "HTTP server, 32 connections", RATE, HTTP),
            Bars("http-client", "add(a, b), sequential", "HTTP client, one call after the other", RATE, CLIENT),
            Bars("http-client", "add(a, b), 32 in flight", "HTTP client, 32 calls in flight", RATE, CLIENT),
            Bars("memory", "add(a, b), sequential", "in memory, one call after the other", RATE, MEMORY),
            Bars("memory", "add(a, b), 64 in flight", "in memory, 64 calls in flight", RATE, MEMORY),
        ],
    ),
    "latency": Picture(
        "How long calls take while more and more are in flight",
        [
            _under_load("stdio", "half of the calls take at most", "half of the calls take at most"),
            _under_load("stdio", "99 of 100 calls take at most", "99 of 100 calls take at most"),
            _under_load("HTTP", "half of the calls take at most", "half of the calls take at most"),
            _under_load("HTTP", "99 of 100 calls take at most", "99 of 100 calls take at most"),
        ],
        height=2.9,
    ),
    "memory": Picture(
        "Memory of servers and of their sessions",
        [
            Bars("idle", "memory of a legacy session that does nothing", "an idle session over HTTP", "KiB", SESSIONS),
            Bars("rss", "peak resident memory, 64 calls in flight", "a stdio server, 64 calls in flight", "MiB", PEAKS),
        ],
    ),
    "payloads": Picture(
        "What a MiB of text costs, in messages of different sizes",
        [_of_payloads(transport) for transport in ("stdio", "WebSocket", "HTTP, modern", "HTTP, events")],
        height=2.9,
    ),
}


def draw_all(report: Report, images: Path) -> Iterator[Path]:
    """Write every picture that a report has figures for, in each theme and size, and yield the files.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    import matplotlib

    # Text stays text; and the same report gives the same file.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "trio_mcp", "font.family": "sans-serif", "font.size": 10}
    for name, picture in PICTURES.items():
        for (theme, colours), (size, columns) in product(THEMES.items(), SIZES.items()):
            with matplotlib.rc_context(settings):
                figure = picture.draw(report, colours, columns)
                if figure is None:
                    continue
                file = images / f"{name}{size}-{theme}.svg"
                written = io.StringIO()
                about = {"Title": picture.title, "Date": None, "Description": described(report)}
                figure.savefig(written, format="svg", metadata=about)
                file.write_text("".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines()))
                yield file


def described(report: Report) -> str:
    """Return the run that a report comes from, in one line."""
    return f"{report['versions']['trio-mcp']}, {report['date']}"
