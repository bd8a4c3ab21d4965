"""Makes the frame and the elements that the HTML pages of ``check`` and ``bench`` share.

A page runs no script, loads nothing from elsewhere, and has a light and a dark style. Strings from a target appear in
it only as text; a Content-Security-Policy in the page's head keeps them from doing anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from trio_mcp._version import __version__
from trio_mcp.conformance.report.view import clean

__all__ = ["facts", "html_page", "notes", "safe", "spans"]

# With this policy nothing runs and nothing is loaded, whatever the strings from a target contain.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# The page brings its own icon, because a browser would otherwise request one from a server.
ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Ccircle cx='8' cy='8' r='7' fill='{}'/%3E%3C/svg%3E"
)
STYLE: Final = files("trio_mcp.conformance.report").joinpath("style.css").read_text(encoding="utf-8")
COLOURS: Final = {True: "%231f8a4c", False: "%23c2352b"}


def html_page(title: str, body: Iterable[str], *, good: bool, footer: str) -> str:
    """Return an HTML page with the shared style, icon and footer.

    Args:
        title: The title of the page, as HTML.
        body: The lines of its content, as HTML: the header, then ``<main>``.
        good: Whether the icon shows that all is well.
        footer: Text to add to the footer, as HTML.
    """
    head = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="generator" content="trio-mcp {__version__}">
<link rel="icon" href="{ICON.format(COLOURS[good])}">
<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>"""
    foot = f"<footer>Made by trio-mcp {__version__}. {footer}</footer>\n</body>\n</html>\n"
    return "\n".join([head, *body, foot])


def safe(value: object) -> str:
    """Return a value as text for HTML, with hidden characters made visible."""
    # The text is cleaned first, and escaped for HTML last: cleaning turns hidden characters into plain text.
    return escape(clean(str(value)))


def facts(found: Mapping[str, Sequence[object]]) -> list[str]:
    """Return an HTML definition list of names, each with its values."""
    rows = (
        f"<div><dt>{name}</dt><dd>{', '.join(f'<span>{safe(value)}</span>' for value in values)}</dd></div>"
        for name, values in found.items()
    )
    return ["<dl>", *rows, "</dl>"]


def notes(found: Iterable[str]) -> list[str]:
    """Return an HTML section with these notes, or nothing if there are none."""
    items = "".join(f"<li>{safe(note)}</li>" for note in found)
    return [f'<section id="notes"><h2>Notes</h2><ul>{items}</ul></section>'] if items else []


def spans(shares: Iterable[tuple[str, object]]) -> str:
    """Return the segments of a bar as HTML, from the CSS class and the share of each."""
    # The browser divides the width by the shares: percentages would have to be rounded, and would not add up to 100.
    return "".join(f'<span class="{kind}" style="flex-grow:{share}"></span>' for kind, share in shares)
