"""Dependencies: the providers that fill parameters marked with `Depends`, and calling a function inside of them."""

from __future__ import annotations

import contextlib
import enum
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin

import attrs

from trio_mcp.server.functions.introspection import bare, bound_by_partials, is_async, is_context, resolved_hints
from trio_mcp.server.functions.sync_threads import SyncThreads

__all__ = ["Dependencies", "Depends", "Overrides", "Surroundings", "marker_in", "read_dependencies"]

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
    key = _key_of(function)
    if key in known:
        return known[key]
    if key in map(_key_of, path):
        circle = " -> ".join(_name(each) for each in (*path[list(map(_key_of, path)).index(key) :], function))
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
    known[key] = Provider(key, _name(function), called, how, context_parameter, needs)
    return known[key]


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


def _key_of(function: Callable[..., Any]) -> object:
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


class Overrides:
    """What stands in for providers just now, for tests.

    Attributes:
        active: By the keys of the providers.
    """

    def __init__(self) -> None:
        self.active: Mapping[object, Provider] = {}
        self._entries: list[tuple[object, Provider]] = []

    @contextlib.contextmanager
    def stand_in(self, provider: Callable[..., Any], other: Callable[..., Any], context_type: type) -> Iterator[None]:
        """Have another provider stand in for one: see `Server.override`."""
        entry = (_key_of(provider), _read(other, context_type, "override", {}, ()))
        self._entries.append(entry)
        self.active = dict(self._entries)
        try:
            yield
        finally:
            self._entries.remove(entry)  # not the last one: blocks of several tasks may end in any order
            self.active = dict(self._entries)


@attrs.frozen(eq=False)
class Surroundings:
    """What all functions of a server are called with.

    Attributes:
        context_type: The class of contexts: a parameter annotated with it is filled, and clients don't see it.
        threads: Where sync functions run.
        overrides: What stands in for providers.
    """

    context_type: type
    threads: SyncThreads
    overrides: Overrides = attrs.Factory(Overrides)


_IN_THE_LOOP = (Kind.AWAITED, Kind.ASYNC_MANAGER)


class _Step(NamedTuple):
    provider: Provider
    arguments: dict[str, int]  # which step gives each


class _Plan(NamedTuple):
    """The steps that fill the parameters of one function, each after what it needs.

    Attributes:
        steps: What is to be called.
        parameters: The step that gives each parameter of the function.
        in_loop: The steps that are taken in the event loop.
        in_thread: The rest, taken in the thread of a sync function.
    """

    steps: list[_Step]
    parameters: dict[str, int]
    in_loop: list[int]
    in_thread: list[int]


def make_plan(needs: Needs, is_async: bool, overrides: Mapping[object, Provider]) -> _Plan:
    """Put the providers of a function in order.

    A sync provider runs where the function runs, as if that had called it itself: in the event loop, or in the thread
    of a sync function. So a blocking one blocks nobody else there, and what belongs to a thread stays in it. What an
    async provider needs is needed earlier, in the event loop.

    Args:
        needs: The function's.
        is_async: Whether the function is async.
        overrides: What stands in for providers, by their keys.

    Raises:
        TypeError: With the overrides there is a circle.
    """
    steps: list[_Step] = []
    shared: dict[object, int] = {}

    def place(provider: Provider, cache: bool, path: tuple[Provider, ...]) -> int:
        stand_in = overrides.get(provider.key)
        if stand_in is not None and stand_in not in path:  # else it wants the real one
            provider = stand_in
        if provider in path:
            raise TypeError(f"with its override the provider {provider.name!r} depends on itself")
        if cache and provider.key in shared:
            return shared[provider.key]
        inner = (*path, provider)
        arguments = {name: place(*need, inner) for name, need in provider.needs.items()}
        steps.append(_Step(provider, arguments))
        if cache:
            shared[provider.key] = len(steps) - 1
        return len(steps) - 1

    parameters = {name: place(*need, ()) for name, need in needs.items()}
    early = set(range(len(steps)))
    if not is_async:
        early = {number for number in early if steps[number].provider.kind in _IN_THE_LOOP}
        for number in reversed(range(len(steps))):
            if number in early:
                early.update(steps[number].arguments.values())
    numbers = range(len(steps))
    return _Plan(steps, parameters, [n for n in numbers if n in early], [n for n in numbers if n not in early])


@attrs.frozen(eq=False)
class Dependencies:
    """What a function depends on."""

    _what: str
    _needs: Needs
    _is_async: bool
    _surroundings: Surroundings
    _plan: _Plan

    async def call(self, context: object, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Fill the parameters, call the function, and leave what was entered, in reverse order.

        What has been entered sees the exception that ended the function, `trio.Cancelled` included.

        Args:
            context: What providers get that ask for it.
            function: The function.
            arguments, named: Its other arguments.
        """
        overrides = self._surroundings.overrides.active
        plan = make_plan(self._needs, self._is_async, overrides) if overrides else self._plan
        values: list[Any] = [None] * len(plan.steps)

        def ready() -> Any:
            provided = {name: values[number] for name, number in plan.parameters.items()}
            return function(*arguments, **{**named, **provided})

        async with contextlib.AsyncExitStack() as stack:
            for number in plan.in_loop:
                kind, value = _provided(plan.steps[number], values, context)
                if kind is Kind.ASYNC_MANAGER:
                    value = await stack.enter_async_context(value)
                elif kind is Kind.MANAGER:
                    value = stack.enter_context(value)
                elif kind is Kind.AWAITED:
                    value = await value
                values[number] = value
            if self._is_async:
                return await ready()
            # An abandoned thread leaves what it has entered, too.
            return await self._surroundings.threads.call(self._in_thread, plan, values, context, ready)
        raise self._swallowed()

    def _in_thread(self, plan: _Plan, values: list[Any], context: object, ready: Callable[[], Any]) -> Any:
        with contextlib.ExitStack() as stack:
            entered = False
            for number in plan.in_thread:
                kind, value = _provided(plan.steps[number], values, context)
                if kind is Kind.MANAGER:
                    value, entered = stack.enter_context(value), True
                values[number] = value
            value = ready()
            if entered and inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise TypeError(
                    f"{self._what} is a sync function that returns something to await, and what its providers gave "
                    "it would be closed by then; make it an async function"
                )
            return value
        raise self._swallowed()

    def _swallowed(self) -> RuntimeError:
        return RuntimeError(
            f"{self._what}: a provider swallowed the exception that ended it, so there is no result; it may "
            "raise another exception, but not go on as if there had been none"
        )


def _provided(step: _Step, values: list[Any], context: object) -> tuple[Kind, Any]:
    provider = step.provider
    given = {name: values[number] for name, number in step.arguments.items()}
    if provider.context_parameter is not None:
        given[provider.context_parameter] = context
    return provider.kind, provider.function(**given)


def read_dependencies(
    markers: Mapping[str, Depends], is_async: bool, surroundings: Surroundings, what: str
) -> Dependencies:
    """What a function depends on, by the marker of each parameter that has one.

    Raises:
        TypeError: A provider can't be used; the message says which one, of which parameter, and why.
    """
    known: dict[object, Provider] = {}
    kind = surroundings.context_type
    needs = {
        name: (_read(marker.provider, kind, f"{what}: the parameter {name!r}", known, ()), marker.cache)
        for name, marker in markers.items()
    }
    return Dependencies(what, needs, is_async, surroundings, make_plan(needs, is_async, {}))
