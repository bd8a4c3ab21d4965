"""Draws a transcript as a sequence diagram: inline SVG whose colours come from the page.

Widths are percentages of the page's width, and heights are fixed, so the diagram fits on a phone without smaller text.
The browser cuts off text that is too long for its line; a tooltip shows all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from trio_mcp.conformance.report.view import ShownEvent

__all__ = ["diagram"]

HEAD = 40
ARROW = 46
BARE = 32
"""The height of an arrow without a line of detail, in pixels."""

NOTE = 34
END = 14

CLIENT, SERVER = "7%", "93%"


def diagram(events: Sequence[ShownEvent], *, before: int, name: str) -> str:
    """Return the sequence diagram of a transcript, as inline SVG.

    Args:
        events: The events to draw.
        before: How many earlier events, which only connect and read lists, are left out.
        name: A description of the diagram, for people who can't see it.
    """
    rows: list[str] = []
    y = HEAD
    # The earlier events are summed up in one line: they are much the same for every failure, and would push what
    # matters off the screen of a phone.
    if before:
        rows.append(_note(y, f"… {before} events of connecting and listing", "", "quiet"))
        y += NOTE
    # A label begins with the number of its connection only if there are several connections.
    many = len({each.event.connection for each in events}) > 1
    for each in events:
        label = f"[{each.event.connection}] {each.label}" if many else each.label
        if each.event.sender == "kit":
            rows.append(_note(y, f"{label} {each.detail}".strip(), _tip(each), "bad" if each.is_bad else ""))
            y += NOTE
        else:
            height = ARROW if each.detail else BARE
            rows.append(_arrow(y, height, label, each))
            y += height
    height = y + END
    lines = "".join(
        f'<line class="life" x1="{x}" y1="26" x2="{x}" y2="{height}"/><text class="who" x="{x}" y="17">{who}</text>'
        for x, who in ((CLIENT, "client"), (SERVER, "server"))
    )
    return (
        f'<svg class="diagram" width="100%" height="{height}" role="img" aria-label="{escape(name)}">'
        f"{lines}{''.join(rows)}</svg>"
    )


def _arrow(y: int, height: int, label: str, shown: ShownEvent) -> str:
    start, end = (CLIENT, SERVER) if shown.event.sender == "client" else (SERVER, CLIENT)
    # Events that only frame the messages are drawn lighter: a reader looks for the messages.
    light = shown.event.kind not in ("message", "text")
    kinds = " ".join(["row", *["bad"] * shown.is_bad, *["light"] * light])
    # The arrowhead is a nested SVG, so that it can be placed at a percentage of the width while its points are in
    # pixels.
    tip = "-11,-5 -1,0 -11,5" if end == SERVER else "11,-5 1,0 11,5"
    return (
        f'<g class="{kinds}">{_tip(shown)}'
        f'<rect class="band" x="0" y="{y}" width="100%" height="{height - 2}" rx="6"/>'
        f'<line x1="{start}" y1="{y + 22}" x2="{end}" y2="{y + 22}"/>'
        f'<svg x="{end}" y="{y + 22}" width="1" height="1" overflow="visible"><polygon points="{tip}"/></svg>'
        f"{_text(y + 3, 'label', ('✗ ' if shown.is_bad else '') + label)}"
        f"{_text(y + 25, 'detail', shown.detail)}</g>"
    )


def _note(y: int, text: str, tip: str, kind: str) -> str:
    return (
        f'<g class="note {kind}">{tip}<rect x="12%" y="{y + 3}" width="76%" height="{NOTE - 10}" rx="12"/>'
        f"{_text(y + 6, 'label', text)}</g>"
    )


def _text(y: int, kind: str, text: str) -> str:
    # The text is HTML because SVG can't cut a text off at the end of its line.
    if not text:
        return ""
    return (
        f'<foreignObject x="13%" y="{y}" width="74%" height="18">'
        f'<div xmlns="http://www.w3.org/1999/xhtml" class="{kind}">{escape(text)}</div></foreignObject>'
    )


def _tip(shown: ShownEvent) -> str:
    return f"<title>{shown.time:.3f} s: {escape(f'{shown.label} {shown.detail}'.strip())}</title>"
