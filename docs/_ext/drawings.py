"""Draw the pictures from text: ``python docs/_ext/drawings.py`` writes the SVGs for each docs/images/*.txt.

There is one for light pages and one for dark ones. A sequence has two more for phones, where a lane has the last word
of its name and nothing else.

The first line of such a text says which kind of picture it is, the second is the title for those who don't see it.
Blank lines and lines that begin with ``#`` say nothing.

* ``rooms``: boxes that stand on each other. A line is a storey: ``label | name: text, line by line | name: text``.
* ``path``: a way down on the left, and back up on the right. A line is a station: ``name: text | name: text``. The last
  line, ``turn name: text``, is where it turns.
* ``sequence``: who tells whom, from top to bottom. The first line names the lanes: ``name | name | name``. The others
  are ``1 -> 3 text`` (an arrow from the first lane to the third), ``3 => 1 text`` (one that ends something, dashed),
  and ``2 - text`` (a note on a lane).
"""

from __future__ import annotations

import re
import sys
from itertools import product
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

IMAGES = Path(__file__).resolve().parent.parent / "images"
WIDTH, PHONE = 940, 360
EDGE, GAP = 16, 14

Theme = dict[str, Any]

# Furo's own backgrounds, so that a picture lies on the page without a frame.
THEMES: dict[str, Theme] = {
    "light": {
        "page": "#ffffff", "line": "#7b8ba3", "arrow": "#55606e", "strong": "#1c2733", "text": "#3b4856",
        "faint": "#55606e", "end": "#b3261e", "fills": ("#fdf3e7", "#eaf6ee", "#eef3fb", "#f4effa"),
    },
    "dark": {
        "page": "#131416", "line": "#5d6b80", "arrow": "#9aa7b8", "strong": "#eef2f7", "text": "#c3ccd8",
        "faint": "#9aa7b8", "end": "#ff8a80", "fills": ("#3a2c1b", "#1d3326", "#1f2a3d", "#2d2440"),
    },
}  # fmt: skip


class Picture:
    """An SVG that grows downwards."""

    def __init__(self, theme: Theme, width: float = WIDTH) -> None:
        self.width = width
        self.fills = theme["fills"]
        self._theme = theme
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, kind: str = "text", bold: bool = False, middle: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ' font-size="12.5"'
        anchor = ' text-anchor="middle"' if middle else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}"{weight}{anchor} fill="{self._theme[kind]}">{escape(words)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str, name: str, lines: list[str]) -> None:
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" '
            f'stroke="{self._theme["line"]}"/>'
        )
        left = x + (12 if width > 100 else 5)
        self.text(left, y + 22, name, kind="strong", bold=True)
        for number, line in enumerate(lines):
            self.text(left, y + 41 + number * 17, line)

    def arrow(self, way: str, *, kind: str = "arrow", dashed: bool = False) -> None:
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{way}" fill="none" stroke="{self._theme[kind]}" stroke-width="1.4"{dashes} '
            f'marker-end="url(#{kind})"/>'
        )

    def note(self, x: float, y: float, words: str, kind: str = "strong") -> None:
        """Write words around a place, or as near to it as the picture has room, over the lines that they hide."""
        width = 7 * len(words)  # a bit more than they take
        left = min(max(x - width / 2, EDGE), self.width - EDGE - width)
        self._parts.append(
            f'<rect x="{left:g}" y="{y - 15:g}" width="{width:g}" height="21" rx="4" fill="{self._theme["page"]}"/>'
        )
        self.text(left + width / 2, y, words, middle=True, kind=kind)

    def line(self, way: str) -> None:
        self._parts.append(f'<path d="{way}" fill="none" stroke="{self._theme["line"]}" stroke-dasharray="2 4"/>')

    def svg(self, height: float, title: str) -> str:
        tips = "".join(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{self._theme[kind]}"/></marker>'
            for kind in ("arrow", "end")
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:g}" width="{self.width}" '
            f'height="{height:g}" role="img" font-family="system-ui, sans-serif" font-size="14">'
        )
        page = f'<rect width="{self.width}" height="{height:g}" rx="8" fill="{self._theme["page"]}"/>'
        return "\n".join(
            [head, f"<title>{escape(title)}</title>", f"<defs>{tips}</defs>", page, *self._parts, "</svg>\n"]
        )


def _named(text: str) -> tuple[str, list[str]]:
    name, _, rest = text.partition(": ")
    return name.strip(), [line.strip() for line in rest.split(" / ") if line.strip()]


def draw_rooms(picture: Picture, lines: list[str]) -> float:
    left, y = 170, EDGE
    for line in lines:
        label, *boxes = line.split("|")
        label, _, fill = label.strip().rpartition(" ")
        rooms = [_named(box) for box in boxes]
        height = 41 + 17 * max(len(texts) for _, texts in rooms)
        width = (WIDTH - left - EDGE - GAP * (len(rooms) - 1)) / len(rooms)
        picture.text(EDGE, y + 24, label, kind="faint")
        for number, (name, texts) in enumerate(rooms):
            picture.box(
                round(left + number * (width + GAP)), y, round(width), height, picture.fills[int(fill)], name, texts
            )
        y += height + GAP
    picture.arrow(f"M148 24V{y - 26}")
    picture.text(EDGE, y - 6, "imports go down only", kind="faint")
    return y + 8


def draw_path(picture: Picture, lines: list[str]) -> float:
    *stations, turn = lines
    y, height, width = 20, 46, 420
    right = WIDTH - EDGE - width
    for number, line in enumerate(stations):
        down, up = (_named(part) for part in line.split("|"))
        picture.box(EDGE, y, width, height, picture.fills[2], *down)
        picture.box(right, y, width, height, picture.fills[1], *up)
        if number < len(stations) - 1:
            picture.arrow(f"M{EDGE + width / 2:g} {y + height}V{y + height + 13}")
            picture.arrow(f"M{right + width / 2:g} {y + height + 14}V{y + height + 2}")
        y += height + 15
    picture.box((WIDTH - width) / 2, y + 6, width, height, picture.fills[0], *_named(turn.removeprefix("turn ")))
    picture.arrow(f"M{EDGE + width / 2:g} {y - 15}V{y + 29}H{(WIDTH - width) / 2 - 3:g}")
    picture.arrow(f"M{(WIDTH + width) / 2:g} {y + 29}H{right + width / 2:g}V{y - 12}")
    return y + height + 24


def draw_sequence(picture: Picture, lines: list[str]) -> float:
    lanes = [_named(lane) for lane in lines[0].split("|")]
    gap = GAP
    if picture.width == PHONE:
        lanes, gap = [(name.split()[-1], []) for name, _ in lanes], 6
    width = (picture.width - 2 * EDGE - gap * (len(lanes) - 1)) / len(lanes)
    middles = [EDGE + number * (width + gap) + width / 2 for number in range(len(lanes))]
    top = 20 + 41 + 17 * max(len(texts) for _, texts in lanes)
    for middle in middles:
        picture.line(f"M{middle:g} {top}V{top + 28 * len(lines[1:]) + 14}")
    y = top
    for line in lines[1:]:
        found = re.fullmatch(r"(\d) (?:(->|=>) (\d)|-) (.*)", line)
        if found is None:
            raise SystemExit(f"not a line of a sequence: {line}")
        begin, kind, end, words = found.groups()
        y += 28
        start = middles[int(begin) - 1]
        if kind is None:
            picture.note(start, y, words)
            continue
        stop = middles[int(end) - 1]
        ends = kind == "=>"
        picture.note((start + stop) / 2, y - 8, words, "end" if ends else "text")
        side = 6 if stop > start else -6
        picture.arrow(f"M{start + side:g} {y}H{stop - side:g}", kind="end" if ends else "arrow", dashed=ends)
    for number, (name, texts) in enumerate(lanes):
        fill = picture.fills[0 if number in (0, len(lanes) - 1) else 2]
        picture.box(round(middles[number] - width / 2), 16, round(width), top - 20, fill, name, texts)
    return y + 24


KINDS = {"rooms": draw_rooms, "path": draw_path, "sequence": draw_sequence}


def drawn(text: str, theme: Theme, width: float = WIDTH) -> str:
    """Return the SVG of a text."""
    kind, title, *lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    picture = Picture(theme, width)
    return picture.svg(KINDS[kind](picture, lines), title)


def drawings() -> dict[Path, str]:
    """Return all SVGs by path, as they should be."""
    found = {}
    for source in sorted(IMAGES.glob("*.txt")):
        text = source.read_text()
        widths = {"": WIDTH} | ({"-narrow": PHONE} if text.startswith("sequence") else {})
        for (size, width), (name, theme) in product(widths.items(), THEMES.items()):
            found[source.with_name(f"{source.stem}{size}-{name}.svg")] = drawn(text, theme, width)
    return found


if __name__ == "__main__":
    for path, svg in drawings().items():
        path.write_text(svg)
        print(path, file=sys.stderr)
