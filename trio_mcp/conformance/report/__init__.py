"""Lists the formats of a report; the extension of a file's name selects a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.report.html import html
from trio_mcp.conformance.report.json import json_text
from trio_mcp.conformance.report.junit import junit
from trio_mcp.conformance.report.sarif import sarif
from trio_mcp.conformance.report.table import table

__all__ = ["FORMS", "form_of"]

FORMS: Final[dict[str, Callable[[CheckReport], str]]] = {
    ".html": html,
    ".json": json_text,
    ".xml": junit,
    ".sarif": sarif,
    ".txt": table,
}
"""The functions that render a report, by the extension of the file's name."""


def form_of(path: str | Path) -> Callable[[CheckReport], str]:
    """Return the function that renders a report for a file with this name.

    Raises:
        ValueError: If no format has the extension of this name.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMS:
        raise ValueError(f"the name of a report must end with one of {', '.join(FORMS)}; got {str(path)!r}")
    return FORMS[ending]
