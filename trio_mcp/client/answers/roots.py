"""Answer a server that asks for the client's roots (`client/roots`)."""

from __future__ import annotations

import os.path
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path, PurePath
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from trio_mcp.convert import call_back
from trio_mcp.types._base import field_span
from trio_mcp.types.capabilities import RootsCapability
from trio_mcp.types.roots import ListRootsRequestParams, ListRootsResult, Root

__all__ = ["Roots", "RootsSource"]

RootLike: TypeAlias = Root | PurePath | str
RootList: TypeAlias = Iterable[RootLike]
Roots: TypeAlias = RootList | Callable[[], Awaitable[RootList] | RootList]

# RFC 3986, section 2: a URI has neither spaces nor control characters, which must be percent-encoded.
_ODD = re.compile(r"[\s\x00-\x1f\x7f]")


class RootsSource:
    """The roots of a `Client`: a list, or a callback that returns one.

    Args:
        roots: The list, or a sync or async function without parameters.

    Raises:
        TypeError, ValueError: If a root is invalid.
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = self.checked(roots)

    @staticmethod
    def checked(roots: Roots) -> Callable[[], Awaitable[RootList] | RootList] | list[Root]:
        """Check roots, and return them in the form that `set` takes; the exceptions are those of the constructor."""
        return roots if callable(roots) else _as_roots(roots)

    def set(self, checked: Callable[[], Awaitable[RootList] | RootList] | list[Root]) -> None:
        """Replace the roots with others that `checked` has returned."""
        self._roots = checked

    def capability(self, revision: str) -> dict[str, Any]:
        """Return the capability that the client declares in a revision."""
        return {"listChanged": True} if revision in field_span(RootsCapability, "list_changed").revisions else {}

    def prepare(
        self, params: ListRootsRequestParams | None, plain: dict[str, Any], revision: str
    ) -> Callable[[], Awaitable[Any]]:
        """Return the function that gets the roots; the request has no parameters to check."""
        return self._list

    async def _list(self) -> dict[str, Any]:
        roots = self._roots
        # A callback's roots are checked each time, as it may return different ones.
        known = _as_roots(await call_back(roots)) if callable(roots) else roots
        return ListRootsResult(roots=known).to_wire()


def _as_roots(given: object) -> list[Root]:
    if isinstance(given, (str, PurePath, Root)) or not isinstance(given, Iterable):
        raise TypeError(f"roots must be a list of Root objects, Paths or file:// URIs; got {type(given).__name__}")
    return [_as_root(each) for each in given]


def _as_root(given: object) -> Root:
    if isinstance(given, PurePath):
        # The path is made absolute and normalized, so that the server sees an unambiguous one. No symbolic link is
        # resolved.
        return Root(uri=Path(os.path.abspath(given)).as_uri())
    root = Root(uri=given) if isinstance(given, str) else given
    if not isinstance(root, Root):
        raise TypeError(f"a root must be a Root, a Path or a file:// URI; got {type(given).__name__}")
    uri = root.uri
    if uri[:7].lower() != "file://":
        raise ValueError(f"a root must be a file:// URI, got {uri!r}; pass a path as pathlib.Path({uri!r})")
    try:
        steps = unquote(urlsplit(uri).path).split("/")
    except ValueError as exc:
        raise ValueError(f"the root {uri!r} is not a URI: {exc}") from None
    # A server may compare prefixes: '..', even percent-encoded, could lead out of the root.
    if _ODD.search(uri) or ".." in steps:
        raise ValueError(f"the root {uri!r} must not contain '..', spaces or control characters")
    return root
