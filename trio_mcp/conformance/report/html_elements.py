"""The frame and the elements that the HTML pages of ``check`` and ``bench`` share.

A page runs no script, loads nothing from elsewhere, and has a light and a dark style. The texts of a target appear in
it as text only; a policy in its head makes sure of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from trio_mcp._version import __version__
from trio_mcp.conformance.report.view import clean

__all__ = ["facts", "html_page", "notes", "safe", "spans"]

# Nothing runs and nothing is loaded, whatever the texts of a target hold.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# The icon is here because a browser would ask for one.
ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Ccircle cx='8' cy='8' r='7' fill='{}'/%3E%3C/svg%3E"
)
STYLE: Final = files("trio_mcp.conformance.report").joinpath("style.css").read_text(encoding="utf-8")
COLOURS: Final = {True: "%231f8a4c", False: "%23c2352b"}


def html_page(title: str, body: Iterable[str], *, good: bool, footer: str) -> str:
    """Return a page.

    Args:
        title: Its title, as HTML.
        body: Its content, as HTML: the header, then ``<main>``.
        good: Whether its icon says that all is well.
        footer: The end of it, as HTML.
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
    """Return a value as text for HTML, in which nothing is hidden."""
    # The text is cleaned first: an escape for a hidden character is plain text, so the escapes of HTML have the last
    # word.
    return escape(clean(str(value)))


def facts(found: Mapping[str, Sequence[object]]) -> list[str]:
    """Return a list of names, each with its values."""
    rows = (
        f"<div><dt>{name}</dt><dd>{', '.join(f'<span>{safe(value)}</span>' for value in values)}</dd></div>"
        for name, values in found.items()
    )
    return ["<dl>", *rows, "</dl>"]


def notes(found: Iterable[str]) -> list[str]:
    """Return a section of notes, if there are any."""
    items = "".join(f"<li>{safe(note)}</li>" for note in found)
    return [f'<section id="notes"><h2>Notes</h2><ul>{items}</ul></section>'] if items else []


def spans(shares: Iterable[tuple[str, object]]) -> str:
    """Return the parts of a bar, each with its class and its share."""
    # The browser divides up the shares: percentages would have to be rounded, and their sum would not fit.
    return "".join(f'<span class="{kind}" style="flex-grow:{share}"></span>' for kind, share in shares)
