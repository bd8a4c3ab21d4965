"""What an editor offers after ``server.`` and ``ctx.`` is for users, and says what it is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from trio_mcp import Context, ProxyServer, Server

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "server.md"


def attributes(kind: type[Any]) -> set[str]:
    """Return what the docstrings of a class and its bases list as attributes."""
    docs = [inspect.cleandoc(each.__doc__ or "").partition("Attributes:")[2] for each in kind.__mro__[:-1]]
    return {name for doc in docs for name in re.findall(r"^    (\w+): \S", doc, flags=re.MULTILINE)}


def offered(shown: object) -> set[str]:
    return {name for name in dir(shown) if not name.startswith("_")}


@pytest.mark.parametrize("shown", [Server("x"), ProxyServer(Server("x")), Context], ids=["Server", "proxy", "Context"])
def test_every_name_that_an_editor_offers_says_what_it_is(shown: Any) -> None:
    kind = shown if isinstance(shown, type) else type(shown)
    methods = {name for name in offered(kind) if inspect.getdoc(inspect.getattr_static(kind, name, None))}
    assert offered(shown) - attributes(kind) - methods == set()


def test_the_reference_leaves_out_no_name_of_a_server_or_a_context() -> None:
    """What is not for users has no public name."""
    for kind in ("Server", "Context"):
        options = re.search(rf"autoclass:: {kind}\n((?: +:.*\n)+)", REFERENCE.read_text())
        assert options is not None
        assert "exclude-members" not in options[1]
