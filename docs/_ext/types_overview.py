"""The directives ``types-overview`` and ``methods-overview``: tables made from `trio_mcp.types` itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from trio_mcp import types
from trio_mcp.types._base import class_span

Cell = str | Sequence[nodes.Node]


class MethodsOverview(SphinxDirective):
    """Every method: who sends it, since and until which revision, and the models that it carries."""

    def run(self) -> list[nodes.Node]:
        spans: dict[str, list[str]] = {}
        newest: dict[str, types.MethodSpec] = {}
        for revision in types.REVISIONS:
            for method, spec in types.methods_of(revision).items():
                spans.setdefault(method, []).append(revision)
                newest[method] = spec
        rows = [
            (
                [nodes.literal(text=method)],
                "request" if spec.is_request else "notification",
                "inside a result" if spec.embedded else " or ".join(sorted(spec.senders)),
                span_of(spans[method]),
                [nodes.literal(text=spec.params.__name__)],
                [nodes.literal(text=spec.results[0].__name__)] if spec.is_request else "",
            )
            for method, spec in newest.items()
        ]
        return [table(("method", "kind", "sent by", "revisions", "parameters", "result"), rows, "wrapped")]


class TypesOverview(SphinxDirective):
    """Every model, with its first line and its revisions, by module."""

    def run(self) -> list[nodes.Node]:
        modules: dict[str, list[tuple[Cell, ...]]] = {}
        for name in types.__all__:
            model = getattr(types, name)
            if not (inspect.isclass(model) and issubclass(model, types.WireModel)) or model.__name__ != name:
                continue
            summary = (inspect.getdoc(model) or "").partition("\n")[0]
            if model is not types.WireModel and summary == (inspect.getdoc(types.WireModel) or "").partition("\n")[0]:
                summary = ""  # inherited: it says nothing of this one
            module = model.__module__.rpartition(".")[2]
            entry = nodes.literal(text=name, ids=[anchor(name)])
            row = ([entry], _text(summary), span_of(class_span(model)))
            modules.setdefault(module, []).append(row)
        found: list[nodes.Node] = []
        for module, rows in sorted(modules.items()):
            found.append(nodes.rubric(text=module.strip("_").replace("_", " ")))
            found.append(table(("model", "what it is", "revisions"), rows))
        return found


def anchor(name: str) -> str:
    """Where the overview has a model."""
    return f"trio_mcp.types.{name}"


def span_of(revisions: Sequence[str]) -> str:
    """Revisions in few words."""
    if tuple(revisions) == types.REVISIONS:
        return "all"
    if len(revisions) == 1:
        return f"only {revisions[0]}"
    if revisions[-1] == types.LATEST:
        return f"since {revisions[0]}"
    return f"{revisions[0]} to {revisions[-1]}"


def _text(markup: str) -> list[nodes.Node]:
    """Parse a docstring's line: code in backticks, double or single."""
    parts = re.split(r"(``.+?``|`.+?`)", re.sub(r":\w+:(?=`)", "", markup))
    return [nodes.literal(text=part.strip("`")) if part.startswith("`") else nodes.Text(part) for part in parts if part]


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]], *classes: str) -> nodes.table:
    """Make a table of texts or nodes."""
    group = nodes.tgroup(cols=len(headings))
    group += [nodes.colspec(colwidth=1) for _ in headings]
    group += nodes.thead("", _row(headings))
    group += nodes.tbody("", *[_row(row) for row in rows])
    return nodes.table("", group, classes=["colwidths-auto", *classes])


def _row(cells: Sequence[Cell]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        content = [nodes.Text(cell)] if isinstance(cell, str) else cell
        row += nodes.entry("", nodes.paragraph("", "", *content))
    return row


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("types-overview", TypesOverview)
    app.add_directive("methods-overview", MethodsOverview)
    return {"parallel_read_safe": True}
