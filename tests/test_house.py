"""Rules that keep the package simple: no ladders of classes, no unreviewed public names, no tiny files."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
import tomllib
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

import trio_mcp
from tests.public_names import LISTED, PACKAGE, lines
from trio_mcp._door import DOORS

MOST_CLASSES = 4
"""In the MRO of a public class, besides `object` and those of the standard library."""

LONGER = {"ToolResult": 1}
"""Models of the wire that a client adds short cuts to: pydantic's base class is one too many."""

MOST_ROOT_NAMES = 91
"""Chosen; a new name at the root takes the place of one that fewer programs need."""

WITHOUT_ASYNC = {
    "Client": ["blocking/client.py", "client/client.py"],
    "Subscription": ["blocking/client.py", "client/subscriptions.py"],
}
"""Classes that mean the same with and without ``await``, and so have one name."""

FEWEST_LINES = 40

SMALL = {
    "__init__.py": "says what the folder is",
    "__main__.py": "runs the command line",
    "_log.py": "one logger for all",
    "_patterns.py": "imported by the lowest layers",
    "_version.py": "read by the build",
    "options.py": "declares arguments, whose annotations are evaluated: no other code of its room may be",
}
"""Files that may be shorter, and why."""

BY_STRING = {
    "_door.py": "imports public names when they are first used",
    "http/client/door.py": "the door to the legacy era of clients",
    "http/server/door.py": "the door to the legacy era of servers",
    "conformance/statements/model.py": "reads data files of its own folder",
    "conformance/report/html_elements.py": "reads the style of pages, a data file of its folder",
    "cli/loading.py": "loads what the user names on the command line",
    "cli/new.py": "asks where this package was installed from",
    "cli/publishing/project.py": "asks for the version of an installed package",
    "client/config/reading.py": "what an entry says of authorization, which lies above this room",
    "stores/valkey_scripts/__init__.py": "reads the scripts, which are data files of its own folder",
    "cli/targets.py": "asks whether a word is the name of a module",
}
"""Files that import by a string, which import-linter does not see, and why."""

SHIELDS_ITSELF = {"_last_words": "a session's, to the event store"}
"""What may be awaited on the way out without more ado, and why."""


def modules() -> Iterator[str]:
    for info in pkgutil.walk_packages(trio_mcp.__path__, "trio_mcp."):
        if not info.name.endswith("__main__"):
            yield info.name


def classes() -> list[type]:
    found = {}
    for name in modules():
        module = importlib.import_module(name)
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == name and not value.__name__.startswith("_"):
                found[value] = None
    return list(found)


def test_no_public_class_has_a_ladder_of_bases() -> None:
    """Objects own parts instead of inheriting them."""

    def ladder(kind: type) -> list[type]:
        return [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in sys.stdlib_module_names]

    ladders = {kind: ladder(kind) for kind in classes()}
    assert len(ladders) > 500
    assert {
        kind: bases for kind, bases in ladders.items() if len(bases) > MOST_CLASSES + LONGER.get(kind.__name__, 0)
    } == {}


def test_no_two_classes_share_a_name() -> None:
    """A name has one meaning, that of the glossary in CONTRIBUTING.md; only a file's private classes may repeat one."""
    homes: dict[str, list[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(file.relative_to(PACKAGE)))
    assert len(homes) > 500
    assert {name: files for name, files in homes.items() if len(files) > 1} == WITHOUT_ASYNC


def test_every_public_name_has_been_looked_at() -> None:
    """A name that loses its underscore, or a new one, shows in a reviewed file (`python -m tests.public_names`)."""
    listed, found = LISTED.read_text().splitlines(), list(lines())
    assert found == listed, "\n".join(unified_diff(listed, found, "reviewed", "found", lineterm="", n=0))


def test_the_root_lists_what_the_first_hundred_programs_need() -> None:
    """Everything else has a door of its own: `trio_mcp.low_level`, `trio_mcp.statistics`, `trio_mcp.types`."""
    assert len(trio_mcp.__all__) <= MOST_ROOT_NAMES


def test_no_file_is_a_crumb() -> None:
    """A few lines of code belong in a file with a subject."""
    crumbs = {
        str(file.relative_to(PACKAGE)): count
        for file in PACKAGE.rglob("*.py")
        if (count := len(file.read_text().splitlines())) < FEWEST_LINES
        and file.name not in SMALL
        and f"trio_mcp.{file.stem}" not in DOORS
    }
    assert crumbs == {}


def test_imports_can_be_seen() -> None:
    """import-linter's contracts would mean nothing if modules could be imported by a string."""
    found = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if imports_by_string(file.read_text())}
    assert found == set(BY_STRING)


@pytest.mark.parametrize(
    "source",
    [
        "import importlib",
        "import importlib.util as x",
        "def f():\n    from importlib import import_module",
        "from pkgutil import resolve_name",
        "import runpy",
        "__import__('x')",
        "import builtins\nbuiltins.__import__('x')",
        "exec('import x')",
    ],
)
def test_an_import_by_string_is_found(source: str) -> None:
    assert imports_by_string(source)


def imports_by_string(source: str) -> bool:
    """Whether a file has the means to."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                names = [node.module or ""]
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names = [name]
            case _:
                continue
        if {name.partition(".")[0] for name in names} & {"importlib", "pkgutil", "runpy", "__import__"}:
            return True
        if isinstance(node, ast.Name) and node.id in ("exec", "eval"):
            return True
    return False


def test_no_await_on_the_way_out_replaces_what_was_raised() -> None:
    """In a cancelled scope it would raise `Cancelled`, in place of Ctrl-C: `trio_mcp._nursery.closing` does not."""
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in unshielded(path.read_text())
        if path.name != "_nursery.py"
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("async def f():\n try: pass\n finally: await g()", [3]),
        ("async def f():\n try: pass\n except BaseException:\n  await g()\n  raise", [4]),
        ("async def f():\n try: pass\n finally:\n  async with g(): pass", [4]),
        ("async def f():\n try: pass\n except OSError: await g()", []),
        ("async def f():\n try: pass\n finally:\n  with trio.CancelScope(shield=True): await g()", []),
        ("async def f():\n try: pass\n except BaseException:\n  async with closing(g): raise", []),
    ],
)
def test_an_await_on_the_way_out_is_found(source: str, lines: list[int]) -> None:
    assert list(unshielded(source)) == lines


def unshielded(source: str) -> Iterator[int]:
    """Yield the lines of what is awaited in a ``finally``, or where anything is caught, and can be cancelled."""
    everything = ("BaseException", "trio.Cancelled")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Try, ast.TryStar)):
            caught = [handler.body for handler in node.handlers if ast.unparse(handler.type or node) in everything]
            for statements in (node.finalbody, *caught):
                yield from (line for statement in statements for line in _awaits(statement))


def _awaits(node: ast.AST) -> Iterator[int]:
    if isinstance(node, (ast.With, ast.AsyncWith)):
        around = " ".join(map(ast.unparse, node.items))
        if "shield=True" in around or "closing(" in around:
            return
    if isinstance(node, (ast.Await, ast.AsyncWith, ast.AsyncFor)):
        shielded = isinstance(node, ast.Await) and any(name in ast.unparse(node) for name in SHIELDS_ITSELF)
        if not shielded:
            yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _awaits(child)


def test_a_wheel_holds_the_library_alone() -> None:
    """Another folder here would be a module of that name in the environment of everyone who installs it."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["trio_mcp"]
