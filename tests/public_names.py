"""The public names of every module, as the source has them: what `public_names.txt` lists.

``python -m tests.public_names`` writes the file anew; read its diff before you commit it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "trio_mcp"
LISTED = Path(__file__).with_suffix(".txt")


def is_public(name: str) -> bool:
    return not name.startswith("_")


def bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in its block, without imports."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If(body=body, orelse=other):
            for inner in (*body, *other):
                yield from bound(inner)


def attributes(function: ast.FunctionDef) -> Iterator[str]:
    """Yield what an ``__init__`` sets on its object."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def members(definition: ast.ClassDef) -> Iterator[str]:
    for statement in definition.body:
        yield from bound(statement)
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            yield from attributes(statement)


def public(names: Iterable[str]) -> str:
    return " ".join(sorted({name for name in names if is_public(name)}))


def lines() -> Iterator[str]:
    """Yield a line for each module, and one for each public class with public members."""
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(file.read_text())
        names = public(name for statement in tree.body for name in bound(statement))
        if names:
            yield f"{module}: {names}"
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef) and is_public(statement.name) and public(members(statement)):
                yield f"{module}.{statement.name}: {public(members(statement))}"


if __name__ == "__main__":
    LISTED.write_text("".join(f"{line}\n" for line in lines()))
