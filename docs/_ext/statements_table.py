"""The directives ``statements``, ``statement-counts`` and ``statement-reasons``, made from the kit's statements."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from types_overview import table

from trio_mcp.testing.statements.model import AUTHORIZATION, NOT_OBSERVABLE, REVISIONS, Statement, statements

KEYWORDS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT")
STATUSES = ("checked", "unchecked", *NOT_OBSERVABLE, AUTHORIZATION)


class Counts(SphinxDirective):
    """How many statements there are of each keyword and revision, and how many are checked."""

    def run(self) -> list[nodes.Node]:
        counted = Counter((p.revision, s.keyword, _status(s)) for s in statements() for p in s.places)
        rows = []
        for revision in REVISIONS:
            for keyword in KEYWORDS:
                row = [counted[revision, keyword, status] for status in STATUSES]
                rows.append((revision, keyword, *map(str, [sum(row), *row])))
        return [table(("revision", "keyword", "statements", *STATUSES), rows)]


class Reasons(SphinxDirective):
    """Why a statement can't be observed, and how many statements have that reason."""

    def run(self) -> list[nodes.Node]:
        counted = Counter(s.reason for s in statements() for _ in s.places)
        return [
            table(("reason", "meaning", "statements"), [(r, t, str(counted[r])) for r, t in NOT_OBSERVABLE.items()])
        ]


class Statements(SphinxDirective):
    """A table of statements for each page of the specification."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for page, group in groupby(statements(), key=lambda each: each.places[0].section.partition("#")[0]):
            rows = [(_text(each), each.keyword, each.binds, _places(each), _held(each)) for each in group]
            found += [
                nodes.rubric(text=page),
                table(("statement", "keyword", "binds", "written in", "checked by"), rows),
            ]
        return found


def _status(statement: Statement) -> str:
    return statement.reason or ("checked" if statement.checked else "unchecked")


def _text(statement: Statement) -> list[nodes.Node]:
    parts = statement.text.split("`")
    return [nodes.literal(text=part) if i % 2 else nodes.Text(part) for i, part in enumerate(parts)]


def _places(statement: Statement) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    for place in statement.places:
        comma = ", " if found else ""
        link = nodes.reference(text=place.section, refuri=place.link)
        found += [nodes.Text(f"{comma}{place.revision} "), link, nodes.Text(" "), nodes.literal(text=place.hash)]
    return found


def _held(statement: Statement) -> list[nodes.Node]:
    if not statement.checked:
        return [nodes.Text(_status(statement))]
    return [nodes.literal(text=rule) for rule in statement.rules]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("statements", Statements)
    app.add_directive("statement-counts", Counts)
    app.add_directive("statement-reasons", Reasons)
    return {"parallel_read_safe": True}
