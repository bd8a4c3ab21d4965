"""Plots of the samples, as plain SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 60, 130, 34, 40
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")

Points = list[tuple[float, float]]


def nice(most: float) -> float:
    """Return a round step that gives about five grid lines."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if most / (step * factor) <= 6:
                return step * factor
        step *= 10


def plot(title: str, unit: str, lines: dict[str, Points]) -> str:
    """Draw lines over minutes, from zero."""
    lines = {name: points for name, points in lines.items() if points}
    last = max((points[-1][0] for points in lines.values()), default=1.0) or 1.0
    most = max((value for points in lines.values() for _, value in points), default=1.0) or 1.0
    across, up = nice(last), nice(most)
    top = up * (int(most / up) + 1)

    def at(minute: float, value: float) -> str:
        x = LEFT + minute / last * (WIDTH - LEFT - RIGHT)
        return f"{x:.1f},{HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM):.1f}"

    def text(x: float, y: float, said: str, anchor: str = "start", colour: str = "#333") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(said)}</text>'

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 18, f"{title} ({unit})"),
    ]
    value = 0.0
    while value <= top:
        x, y = at(0, value).split(",")
        drawn.append(f'<path d="M{x},{y} H{WIDTH - RIGHT}" stroke="#ddd"/>')
        drawn.append(text(LEFT - 6, float(y) + 4, f"{value:g}", "end"))
        value += up
    minute = 0.0
    while minute <= last:
        x, y = at(minute, 0).split(",")
        drawn.append(text(float(x), HEIGHT - BOTTOM + 16, f"{minute:g}", "middle"))
        minute += across
    drawn.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "minutes", "middle"))
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(at(*point) for point in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        drawn.append(text(WIDTH - RIGHT + 8, TOP + 16 * number + 8, name, colour=colour))
    return "\n".join([*drawn, "</svg>\n"])


def series(samples: list[dict[str, Any]], name: str, *path: str, factor: float = 1.0) -> Points:
    """Take one figure of a process out of the samples that have it."""
    points = []
    for line in samples:
        value: Any = line.get(name, {})
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            points.append((line["time"] / 60, value * factor))
    return points


def draw_all(samples: list[dict[str, Any]], out: Path) -> None:
    """Write the plots."""
    processes = ("steady", "proxies", "driver")
    mib = 1 / 2**20
    plots = {
        "memory": ("Resident memory", "MiB", {name: series(samples, name, "rss", factor=mib) for name in processes}),
        "descriptors": ("Descriptors", "open", {name: series(samples, name, "descriptors") for name in processes}),
        "tasks": ("Trio tasks", "living", {name: series(samples, name, "tasks") for name in processes}),
        "objects": (
            "Objects that the collector knows",
            "thousands",
            {name: series(samples, name, "objects", "all", factor=0.001) for name in processes},
        ),
        "allocators": (
            "The steady server, as its allocators see it",
            "MiB; blocks in hundreds of thousands",
            {
                "resident": series(samples, "steady", "rss", factor=mib),
                "malloc: in use": series(samples, "steady", "malloc", "used", factor=mib),
                "malloc: free": series(samples, "steady", "malloc", "free", factor=mib),
                "malloc: mapped": series(samples, "steady", "malloc", "mapped", factor=mib),
                "Python blocks": series(samples, "steady", "blocks", factor=1e-5),
            },
        ),
    }
    for name, (title, unit, lines) in plots.items():
        (out / f"{name}.svg").write_text(plot(title, unit, lines))
