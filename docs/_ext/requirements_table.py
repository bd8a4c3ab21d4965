"""The directive ``requirements``: a table for each topic, made from the rows that the tests run."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from types_overview import span_of, table

from tests.requirements.model import Requirement, topics

SITE = "https://modelcontextprotocol.io"


class RequirementsTable(SphinxDirective):
    """Every requirement: what, where it is written, the revisions that have it, and the test that holds it."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        total = 0
        for topic in topics():
            rows = [(r.text, _section(r), span_of(r.revisions), _test(topic.module, r)) for r in topic.rows.values()]
            total += len(rows)
            found.append(nodes.rubric(text=topic.name))
            found.append(table(("requirement", "section", "revisions", "held by"), rows, "filtered"))
        return [nodes.paragraph(text=f"{total} requirements."), *found]


def _section(row: Requirement) -> list[nodes.Node]:
    # Extensions have no revisions of their own there.
    place = "" if row.section.startswith("extensions/") else f"specification/{row.revisions[-1]}/"
    return [nodes.reference(text=row.section, refuri=f"{SITE}/{place}{row.section}")]


def _test(module: str, row: Requirement) -> list[nodes.Node]:
    if row.test is not None:
        return [nodes.literal(text=row.test.removeprefix("tests/"))]
    held = module if row.exchange is not None else f"{module}.{row.name}"
    return [nodes.literal(text=held), nodes.Text(_transports(row))]


def _transports(row: Requirement) -> str:
    if row.not_over_http is None:
        return " over every transport"
    return f" over every transport but HTTP: {row.not_over_http.why}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("requirements", RequirementsTable)
    return {"parallel_read_safe": True}
