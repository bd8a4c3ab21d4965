"""Draw mutations: ``python -m tests.mutations.draw CHECKOUT GROUP [COUNT]`` prints the first of a series, as patches.

`mutations.toml` was drawn with this from a checkout of commit 7b9fb75, which ids such as ``session-07`` refer to: the
seventh draw of the group ``session``. Numbers are missing where a draw was skipped: it changed nothing that a user
could notice, or left an attribute unset that every use of its class needs. The package has been restructured since;
each patch was carried over by hand to the place that its behaviour has now.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

SEED = 20261122

_REGISTRATION = (
    "tools prompts resources signature arguments schemas hints docstrings output dependencies forms completion "
    "custom_methods"
)
_NOT_IN_PROTOCOL = ("http_", "schema_", "json_")
GROUPS: dict[str, Callable[[Path], list[Path]]] = {
    "protocol": lambda root: [
        path for path in sorted(root.glob("protocol/*.py")) if not path.name.startswith(_NOT_IN_PROTOCOL)
    ],
    "session": lambda root: sorted(root.glob("session/*.py")),
    "http": lambda root: sorted(root.glob("protocol/http_*.py")),
    "registration": lambda root: [root / "server" / f"{name}.py" for name in _REGISTRATION.split()],
}
"""The files of each group, in the package as it was."""

FLIPPED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}

_SET = (ast.Attribute, ast.Subscript)


@attrs.frozen
class Mutation:
    """One place in a file, and its replacement."""

    file: Path
    operator: str
    start: int
    end: int
    new: str

    def patch(self) -> tuple[str, str]:
        """Return the lines it changes, before and after, with enough lines above them to make the place unique."""
        source = self.file.read_text()
        first = source.rfind("\n", 0, self.start) + 1
        last = source.find("\n", self.end)
        while source.count(source[first:last]) > 1:
            first = source.rfind("\n", 0, first - 1) + 1
        return source[first:last], source[first : self.start] + self.new + source[self.end : last]


class Finder:
    """All mutations of one file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.source = file.read_text()
        self.lines = [0, *itertools.accumulate(len(line.encode()) for line in self.source.splitlines(keepends=True))]

    def all(self) -> Iterator[Mutation]:
        """Walk the tree, past annotations, docstrings, imports, log messages and what only type checkers see."""
        yield from self._walk(ast.parse(self.source))

    def _walk(self, node: ast.AST, place: str = "") -> Iterator[Mutation]:
        yield from self._at(node, place)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not self._passed_over(child):
                    yield from self._walk(child, field)

    def _passed_over(self, node: ast.AST) -> bool:
        text = ast.unparse(node)
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert)) or text.startswith(("logger.", "__all__")):
            return True
        if isinstance(node, ast.If) and text.startswith("if TYPE_CHECKING"):
            return True
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and ("TypeAlias" in text or "TypeVar" in text):
            return True
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

    def _made(self, operator: str, node: ast.AST, new: str, end: ast.AST | None = None) -> Mutation:
        return Mutation(self.file, operator, self._offset(node)[0], self._offset(end or node)[1], new)

    def _offset(self, node: ast.AST) -> tuple[int, int]:
        data = self.source.encode()
        at = [
            len(data[: self.lines[line - 1] + column].decode())
            for line, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]
        ]
        return at[0], at[1]

    def _at(self, node: ast.AST, field: str) -> Iterator[Mutation]:
        text = ast.get_source_segment(self.source, node) or ""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                start, end = self._offset(left)[1], self._offset(right)[0]
                between = re.sub(r"[a-z][a-z ]*[a-z]|[=!<>]+", FLIPPED[type(op)], self.source[start:end])
                yield Mutation(self.file, "comparison", start, end, between)
            case ast.UnaryOp(op=ast.Not()):
                yield self._made("negation", node, text.removeprefix("not "))
            case ast.BoolOp(op=op, values=[first, second, *_]):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                start, end = self._offset(first)[1], self._offset(second)[0]
                between = self.source[start:end]
                yield Mutation(self.file, "and-or", start, end, between.replace(old, new, 1))
            case ast.Constant(value=bool(value)):
                yield self._made("negation", node, str(not value))
            case ast.Constant(value=int(value)) if field != "slice":
                yield self._made("constant", node, str(value + 1))
            case ast.Break() | ast.Continue():
                yield self._made("break-continue", node, "continue" if text == "break" else "break")
            case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in ("None", "True", "False"):
                yield self._made("return", value, "None")
            case ast.Call(args=arguments, keywords=keywords):
                for before, keyword in itertools.pairwise([*arguments[-1:], *keywords]):
                    yield Mutation(self.file, "argument", self._offset(before)[1], self._offset(keyword)[1], "")
        if isinstance(node, (ast.If, ast.While)):
            yield self._made("condition", node.test, f"not ({ast.get_source_segment(self.source, node.test)})")
        if isinstance(node, ast.If) and node.body:
            yield self._made("branch", node.test, "False")
        if isinstance(node, ast.IfExp):
            for each in (node.body, node.orelse):
                yield self._made("branch", node, ast.get_source_segment(self.source, each) or "")
        if isinstance(node, (ast.AugAssign, ast.Delete, ast.Raise)) or (
            (isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)))
            or (isinstance(node, ast.Assign) and all(isinstance(each, _SET) for each in node.targets))
        ):
            yield self._made("statement", node, "pass")


def series(package: Path, group: str) -> Iterator[Mutation]:
    """Draw mutations: a file weighted by size, an operator by the root of its frequency, and a place for it.

    No line is drawn twice.
    """
    dice = random.Random(f"{SEED}-{group}")
    places: dict[Path, dict[str, list[Mutation]]] = {}
    for file in GROUPS[group](package):
        for mutation in Finder(file).all():
            places.setdefault(file, {}).setdefault(mutation.operator, []).append(mutation)
    used: set[tuple[Path, str]] = set()
    while True:
        sizes = {file: sum(map(len, operators.values())) for file, operators in places.items()}
        operators = places[dice.choices(list(sizes), list(sizes.values()))[0]]
        left = dice.choices(list(operators.values()), [math.sqrt(len(each)) for each in operators.values()])[0]
        if not left:
            continue
        mutation = left.pop(dice.randrange(len(left)))
        line = (mutation.file, mutation.patch()[0].splitlines()[-1])
        if line not in used:
            used.add(line)
            yield mutation


def main() -> None:
    """Print the first draws of a group."""
    root, group, count = Path(sys.argv[1]), sys.argv[2], int((*sys.argv, "25")[3])
    for number, mutation in enumerate(itertools.islice(series(root / "trio_mcp", group), count), 1):
        old, new = mutation.patch()
        print(f"\n{group}-{number:02} {mutation.operator} {mutation.file.relative_to(root)}")
        print("\n".join([f"- {line}" for line in old.splitlines()] + [f"+ {line}" for line in new.splitlines()]))


if __name__ == "__main__":
    main()
