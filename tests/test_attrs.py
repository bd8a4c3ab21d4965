"""`trio_mcp._attrs`: the methods that all classes share do what those do that attrs writes for each class."""

from __future__ import annotations

import sys
from typing import Any

import attrs
import pytest

from trio_mcp import Server, _attrs


def made_by(module: Any, kind: str) -> type:
    class Point:
        x: int
        y: Any = None
        secret: str = attrs.field(default="", repr=False, eq=False)
        size: bytes = attrs.field(default=b"", repr=lambda data: f"<{len(data)} bytes>", hash=False)

    made: type = getattr(module, kind)(Point)
    return made


@pytest.mark.parametrize("kind", ["define", "frozen"])
def test_the_shared_methods_do_what_those_of_attrs_do(kind: str) -> None:
    values = [(1,), (1, 2), (2, 1), (1, 2, "s"), (1, 2, "", b"b"), (1, [1])]
    told = []
    for module in (attrs, _attrs):
        points = [made_by(module, kind)(*each) for each in values]
        made = type(points[0])
        points += [made(*each) for each in values]
        ring = made(1, [])
        ring.y.append(ring)
        told.append(
            (
                [repr(each) for each in [*points, ring]],
                [[one == other for other in points] + [one != other for other in points] for one in points],
                [points[0] == other for other in (None, 1, (1, None))],
                made.__hash__ is None,
            )
        )
        if kind == "frozen":
            hashable = [each for each in points if type(each.y) is not list]
            assert all(hash(one) == hash(other) for one in hashable for other in hashable if one == other)
            assert len(set(map(hash, hashable))) > 1
    assert told[0] == told[1]


def test_what_a_class_defines_itself_is_kept() -> None:
    @_attrs.frozen
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @_attrs.frozen(eq=False)
    class Single:
        x: int

    assert (repr(Own(1)), Own(1) == Own(2), hash(Own(1))) == ("own", True, 7)
    assert Single(1) != Single(1)
    assert len({Single(1), Single(1)}) == 2


def test_no_class_of_a_server_has_methods_that_attrs_wrote() -> None:
    """But ``__init__``: compiling them would be a tenth of its start."""
    assert Server("test").info.name == "test"
    rooms = tuple(f"trio_mcp.{each}" for each in ("server", "session", "jsonrpc", "eras", "schema"))
    classes = [
        each
        for name, module in list(sys.modules.items())
        if name.startswith(rooms)
        for each in vars(module).values()
        if isinstance(each, type) and attrs.has(each) and each.__module__ == name
    ]
    assert len(classes) > 40
    for each in classes:
        for method in ("__repr__", "__eq__", "__hash__"):
            code = getattr(getattr(each, method), "__code__", None)
            assert code is None or "attrs generated" not in code.co_filename, f"{each}: import trio_mcp._attrs as attrs"
