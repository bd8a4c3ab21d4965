"""The surroundings in which a server's functions are called, and the marker that declares their dependencies.

Functions with dependencies also need `trio_mcp.server.functions.dependencies`; the first such function imports it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

from trio_mcp import _attrs as attrs
from trio_mcp.server.functions.sync_threads import FunctionOptions, SyncThreads

__all__ = ["Depends", "Overrides", "Surroundings", "marker_in"]

_EMPTY = inspect.Parameter.empty


@attrs.frozen(eq=False)
class Depends:
    """Marks a parameter that the server fills: ``db: Annotated[Database, Depends(get_db)]``. Clients don't see it.

    Attributes:
        provider: The function that provides the value, sync or async. If it is decorated with ``@contextmanager`` or
            ``@asynccontextmanager``, or is a generator function with one ``yield``, its cleanup runs when the function
            that needs the value has ended. Each of its own parameters is a `Context` or a dependency, or has a default.
        cache: Whether everything in a request that depends on this provider shares one value. If False, this parameter
            gets a value of its own.
    """

    provider: Callable[..., Any]
    cache: bool = attrs.field(default=True, kw_only=True)


def marker_in(annotation: Any, default: Any, where: str) -> Depends | None:
    """Return the `Depends` marker in an annotation, or None.

    Raises:
        TypeError: If the parameter is marked in a way that can't work.
    """
    if isinstance(default, Depends):
        # FastAPI allows a marker as a default. In this library, functions stay callable without a server, and such a
        # call would get the marker as its value.
        raise TypeError(f"{where}: Depends can't be a default value; write Annotated[..., Depends(...)]")
    while hasattr(annotation, "__value__"):  # a type alias, such as `type Db = Annotated[Database, Depends(get_db)]`
        annotation = annotation.__value__
    if get_origin(annotation) is not Annotated:
        return None
    kind, *extras = get_args(annotation)
    if Depends in extras:  # the class itself, without a call: without this check the marker would be ignored
        raise TypeError(f"{where}: write Depends(provider), not Depends")
    markers = [extra for extra in extras if isinstance(extra, Depends)]
    if len(markers) > 1:
        raise TypeError(f"{where} has {len(markers)} Depends(...) markers; keep only one")
    # Python merges nested Annotated types, but not through a type alias: the inner type may have the marker.
    return markers[0] if markers else marker_in(kind, _EMPTY, where)


class Overrides:
    """The providers that are currently replaced, in tests.

    Attributes:
        active: The stand-ins, by the keys of the providers that they replace.
    """

    def __init__(self) -> None:
        # The values are `Provider` objects, but typed as Any, as the module of that class imports this one.
        self.active: Mapping[object, Any] = {}
        self._entries: list[tuple[object, Any]] = []

    @contextlib.contextmanager
    def replaced(self, entry: tuple[object, Any]) -> Iterator[None]:
        """Replace a provider while the block runs.

        Args:
            entry: The key of the provider, and its stand-in.
        """
        self._entries.append(entry)
        self.active = dict(self._entries)
        try:
            yield
        finally:
            self._entries.remove(entry)  # not simply the last: blocks in several tasks may end in any order
            self.active = dict(self._entries)


@attrs.frozen(eq=False)
class Surroundings:
    """The environment that all functions of a server are called in.

    Attributes:
        context_type: The context class; a parameter annotated with it is filled, and hidden from clients.
        threads: The threads for sync functions.
        options: How functions are called and described.
        overrides: The providers that are replaced.
    """

    context_type: type
    threads: SyncThreads
    options: FunctionOptions
    overrides: Overrides = attrs.Factory(Overrides)
