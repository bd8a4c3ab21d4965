"""The directives ``statements``, ``statement-counts`` and ``statement-reasons``, made from the kit's statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from types_overview import table

from trio_mcp.conformance.statements.model import (
    NOT_OBSERVABLE,
    REVISIONS,
    Location,
    Statement,
    statements,
)

KEYWORDS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT")
STATUSES = ("checked", "unchecked", *NOT_OBSERVABLE)


class Counts(SphinxDirective):
    """How many statements there are of each keyword and revision, and how many are checked."""

    def run(self) -> list[nodes.Node]:
        counted = Counter((p.revision, s.keyword, _status(s)) for s in statements() for p in s.places)
        found: list[nodes.Node] = []
        for revision in REVISIONS:
            rows = []
            for keyword in KEYWORDS:
                row = [counted[revision, keyword, status] for status in STATUSES]
                rows.append((keyword, *map(str, [sum(row), *row])))
            found += [nodes.rubric(text=revision), table(("keyword", "all", *STATUSES), rows, "counts")]
        return found


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
                table(("statement", "keyword", "binds", "written in", "checked by"), rows, "filtered", "statements"),
            ]
        return found


def _status(statement: Statement) -> str:
    return statement.reason or ("checked" if statement.checked else "unchecked")


def _text(statement: Statement) -> list[nodes.Node]:
    parts = statement.text.split("`")
    return [nodes.literal(text=part) if i % 2 else nodes.Text(part) for i, part in enumerate(parts)]


def _places(statement: Statement) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    # Most sentences stand in both revisions, word for word and in the same section.
    for (section, digest), places in groupby(sorted(statement.places, key=_words), key=_words):
        found += [nodes.Text(f"{', ' if found else ''}{section}"), *_links(places), nodes.Text(" ")]
        found.append(nodes.literal(text=digest))
    return found


def _words(place: Location) -> tuple[str, str]:
    return place.section, place.hash


def _links(places: Iterable[Location]) -> Iterator[nodes.Node]:
    for place in places:
        yield nodes.Text(" ")
        yield nodes.reference(text=place.revision, refuri=place.link)


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
