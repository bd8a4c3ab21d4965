"""Providers: what fills the parameters that are marked with `Depends`, read when a function is registered."""

from __future__ import annotations

import contextlib
import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, get_args, get_origin

import attrs

from trio_mcp.server.functions.hints import bare, bound_by_partials, is_async, is_context, resolved_hints

__all__ = ["Depends", "Kind", "Needs", "Provider", "key_of", "marker_in", "read_needs", "read_provider"]

_EMPTY = inspect.Parameter.empty
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@attrs.frozen(eq=False)
class Depends:
    """Marks a parameter that the server fills: ``db: Annotated[Database, Depends(get_db)]``. Clients don't see it.

    Attributes:
        provider: What gives the value: a function, sync or async; or one that is decorated with ``@contextmanager`` or
            ``@asynccontextmanager``, or a generator function with one ``yield``, whose value lives until the function
            that needs it has ended. Its own parameters are a `Context`, further dependencies, or have defaults.
        cache: Whether all who need this provider share one value in a request. Without it, this parameter gets its
            own.
    """

    provider: Callable[..., Any]
    cache: bool = attrs.field(default=True, kw_only=True)


class Kind(enum.Enum):
    """How a provider's value is had."""

    VALUE = enum.auto()
    AWAITED = enum.auto()
    MANAGER = enum.auto()
    ASYNC_MANAGER = enum.auto()


@attrs.frozen(eq=False)
class Provider:
    """A provider as the server knows it: what it takes and how its value is had."""

    key: object
    name: str
    function: Callable[..., Any]
    kind: Kind
    context_parameter: str | None
    needs: Needs


Needs: TypeAlias = Mapping[str, tuple[Provider, bool]]
"""The provider of each parameter that has one, and whether it shares the value."""


def marker_in(annotation: Any, default: Any, where: str) -> Depends | None:
    """The marker that an annotation carries, or None.

    Raises:
        TypeError: It is marked in a way that can't work.
    """
    if isinstance(default, Depends):
        raise TypeError(f"{where}: a default is what a plain call would get; write Annotated[..., Depends(...)]")
    while hasattr(annotation, "__value__"):  # a type alias
        annotation = annotation.__value__
    if get_origin(annotation) is not Annotated:
        return None
    kind, *extras = get_args(annotation)
    if Depends in extras:
        raise TypeError(f"{where}: write Depends(provider), not Depends")
    markers = [extra for extra in extras if isinstance(extra, Depends)]
    if len(markers) > 1:
        raise TypeError(f"{where} has {len(markers)} markers Depends(...); one is enough")
    return markers[0] if markers else marker_in(kind, _EMPTY, where)


def read_needs(markers: Mapping[str, Depends], context_type: type, what: str) -> Needs:
    """The providers of a function's parameters, with all that they depend on.

    Args:
        markers: The marker of each parameter that has one.
        context_type: A parameter of a provider annotated with it gets the request's.
        what: What the function is, for error messages: ``"tool 'add'"``.

    Raises:
        TypeError: A provider can't be used; the message says which one, of which parameter, and why.
    """
    known: dict[object, Provider] = {}
    return {
        name: (_read(marker.provider, context_type, f"{what}: the parameter {name!r}", known, ()), marker.cache)
        for name, marker in markers.items()
    }


def read_provider(function: Callable[..., Any], context_type: type, what: str) -> Provider:
    """One provider, with all that it depends on. Errors as in `read_needs`."""
    return _read(function, context_type, what, {}, ())


def _read(
    function: Callable[..., Any],
    context_type: type,
    where: str,
    known: dict[object, Provider],
    path: tuple[Callable[..., Any], ...],
) -> Provider:
    if isinstance(function, type) or not callable(function):
        kind = "a class" if isinstance(function, type) else f"no function but {type(function).__name__}"
        raise TypeError(f"{where}: its provider {_name(function)!r} is {kind}; pass a function that gives the value")
    key = key_of(function)
    if key in known:
        return known[key]
    if key in map(key_of, path):
        circle = " -> ".join(_name(each) for each in (*path[list(map(key_of, path)).index(key) :], function))
        raise TypeError(f"{where}: its providers depend on each other in a circle: {circle}")
    what = f"{where}: its provider {_name(function)!r}"
    hints = resolved_hints(function, what, {context_type.__name__: context_type, "Depends": Depends})
    try:
        parameters = inspect.signature(function).parameters.values()
        settled = bound_by_partials(function)
    except (TypeError, ValueError) as exc:
        raise TypeError(f"{what} has no readable signature: {exc}") from None
    context_parameter: str | None = None
    needs: dict[str, tuple[Provider, bool]] = {}
    for parameter in parameters:
        name = parameter.name
        if name in settled:
            continue
        annotation = hints.get(name, parameter.annotation)
        marker = marker_in(annotation, parameter.default, f"{what}: the parameter {name!r}")
        wanted = marker is not None or (annotation is not _EMPTY and is_context(annotation, context_type))
        if wanted and parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, *_VARIADIC):
            raise TypeError(
                f"{what}: the parameter {name!r} is filled by its name, so it can't be {parameter.kind.description}"
            )
        if marker is not None:
            found = _read(marker.provider, context_type, where, known, (*path, function))
            needs[name] = (found, marker.cache)
        elif wanted:
            if context_parameter is not None:
                raise TypeError(
                    f"{what}: both {context_parameter!r} and {name!r} are a {context_type.__name__}; one is enough"
                )
            context_parameter = name
        elif parameter.default is _EMPTY and parameter.kind not in _VARIADIC:
            raise TypeError(
                f"{what} has a parameter {name!r} that nothing fills: annotate it with {context_type.__name__} or "
                "Annotated[..., Depends(...)], or give it a default"
            )
    how, called = _kind_of(function)
    provider = known[key] = Provider(key, _name(function), called, how, context_parameter, needs)
    return provider


def _kind_of(function: Callable[..., Any]) -> tuple[Kind, Callable[..., Any]]:
    """How a provider's value is had, and what to call for it."""
    plain = bare(function)
    call = plain if inspect.isroutine(plain) else type(plain).__call__
    if inspect.isasyncgenfunction(call):
        return Kind.ASYNC_MANAGER, contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(call):
        return Kind.MANAGER, contextlib.contextmanager(function)
    if is_async(function):
        return Kind.AWAITED, function
    # Only what a decorator made of a generator is entered: a file or a lock is a context manager, too, and a value.
    below = inspect.unwrap(call)
    for test, kind in (
        (inspect.isasyncgenfunction, Kind.ASYNC_MANAGER),
        (inspect.isgeneratorfunction, Kind.MANAGER),
        (inspect.iscoroutinefunction, Kind.AWAITED),
    ):
        if test(below):
            return kind, function
    return Kind.VALUE, function


def key_of(function: Callable[..., Any]) -> object:
    """What makes two providers the same: a method is made anew each time it is asked for, so identity won't do."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


def _name(function: object) -> str:
    plain = bare(function) if callable(function) else function
    name = getattr(plain, "__qualname__", None) or type(plain).__qualname__
    return str(name).rpartition("<locals>.")[2]
