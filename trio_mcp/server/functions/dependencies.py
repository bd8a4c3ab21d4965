"""Reads the providers of parameters marked with `Depends`, and calls functions that have such parameters."""

from __future__ import annotations

import contextlib
import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from trio_mcp import _attrs as attrs
from trio_mcp.server.functions.introspection import bare, bound_by_partials, is_async, is_context, resolved_hints
from trio_mcp.server.functions.surroundings import Depends, Surroundings, marker_in

__all__ = ["Dependencies", "read_dependencies", "stand_in_for"]

_EMPTY = inspect.Parameter.empty
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ProviderKind(enum.Enum):
    """How to obtain a provider's value: call the provider, await its result, or enter its context manager."""

    VALUE = enum.auto()
    AWAITED = enum.auto()
    MANAGER = enum.auto()
    ASYNC_MANAGER = enum.auto()


@attrs.frozen(eq=False)
class Provider:
    """A provider whose signature has been inspected: its parameters, and how to obtain its value."""

    key: object
    name: str
    function: Callable[..., Any]
    kind: ProviderKind
    context_parameter: str | None
    needs: Needs


Needs: TypeAlias = Mapping[str, tuple[Provider, bool]]
"""For each parameter with a provider: the provider, and whether the value is shared."""


def _read(
    function: Callable[..., Any],
    context_type: type,
    where: str,
    known: dict[object, Provider],
    path: tuple[Callable[..., Any], ...],
) -> Provider:
    if isinstance(function, type) or not callable(function):
        kind = "a class" if isinstance(function, type) else f"not a function, but {type(function).__name__}"
        raise TypeError(f"{where}: its provider {_name(function)!r} is {kind}; pass a function that returns the value")
    key = _key_of(function)
    # `known` has the complete providers, `path` those whose parameters are being read.
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
                f"{what}: the parameter {name!r} is passed by name, so it can't be {parameter.kind.description}"
            )
        if marker is not None:
            needs[name] = _read(marker.provider, context_type, where, known, (*path, function)), marker.cache
        elif wanted:
            if context_parameter is not None:
                raise TypeError(
                    f"{what}: {context_parameter!r} and {name!r} are both annotated with {context_type.__name__}; "
                    "keep only one of them"
                )
            context_parameter = name
        # Any other parameter needs a default, which it keeps: a provider is an ordinary function, and may be called as
        # one.
        elif parameter.default is _EMPTY and parameter.kind not in _VARIADIC:
            raise TypeError(
                f"{what} has a parameter {name!r} that nothing fills: annotate it with {context_type.__name__} or "
                "Annotated[..., Depends(...)], or give it a default"
            )
    how, called = _kind_of(function)
    known[key] = Provider(key, _name(function), called, how, context_parameter, needs)
    return known[key]


def _kind_of(function: Callable[..., Any]) -> tuple[ProviderKind, Callable[..., Any]]:
    """Return how to obtain a provider's value, and the function to call for it."""
    # Plain generator functions are turned into context managers here; those that a decorator has already turned into
    # one are recognized below.
    plain = bare(function)
    call = plain if inspect.isroutine(plain) else type(plain).__call__
    if inspect.isasyncgenfunction(call):
        return ProviderKind.ASYNC_MANAGER, contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(call):
        return ProviderKind.MANAGER, contextlib.contextmanager(function)
    if is_async(function):
        return ProviderKind.AWAITED, function
    # Only decorated generators are entered. Any other context manager counts as the value itself, because a provider
    # may return an open file or a lock.
    below = inspect.unwrap(call)
    for test, kind in (
        (inspect.isasyncgenfunction, ProviderKind.ASYNC_MANAGER),
        (inspect.isgeneratorfunction, ProviderKind.MANAGER),
        (inspect.iscoroutinefunction, ProviderKind.AWAITED),
    ):
        if test(below):
            return kind, function
    return ProviderKind.VALUE, function


def _key_of(function: Callable[..., Any]) -> object:
    """Return the key of a provider; two providers are the same if their keys are equal."""
    # A hashable function is itself the key: `obj.method` is a new object each time, but these objects compare equal.
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


def _name(function: object) -> str:
    # The name is as a user would write it, without the enclosing functions. An object without a name gets that of its
    # class.
    plain = bare(function) if callable(function) else function
    name = getattr(plain, "__qualname__", None) or type(plain).__qualname__
    return str(name).rpartition("<locals>.")[2]


# Only providers of these kinds need the event loop; the others run wherever the function runs.
_IN_THE_LOOP = (ProviderKind.AWAITED, ProviderKind.ASYNC_MANAGER)


class _Step(NamedTuple):
    provider: Provider
    arguments: dict[str, int]  # by parameter, the number of the step that provides its value


class _Plan(NamedTuple):
    """The steps that fill the parameters of one function, each step after those it needs.

    Attributes:
        steps: The provider calls.
        parameters: The number of the step for each parameter of the function.
        in_loop: The steps to run in the event loop.
        in_thread: The other steps, to run in the thread of a sync function.
    """

    steps: list[_Step]
    parameters: dict[str, int]
    in_loop: list[int]
    in_thread: list[int]


def make_plan(needs: Needs, is_async: bool, overrides: Mapping[object, Provider]) -> _Plan:
    """Plan the calls of a function's providers, so that each comes after those that it needs.

    Args:
        needs: The providers that the function needs.
        is_async: Whether the function is async.
        overrides: The stand-ins, by the keys of the providers that they replace.

    Raises:
        TypeError: If the overrides make a provider depend on itself.
    """
    steps: list[_Step] = []
    # The keys are those of the providers in use: two providers with the same stand-in share its value.
    shared: dict[object, int] = {}

    def place(provider: Provider, cache: bool, path: tuple[Provider, ...]) -> int:
        stand_in = overrides.get(provider.key)
        if stand_in is not None and stand_in not in path:  # a stand-in may need the real provider
            provider = stand_in
        if provider in path:
            raise TypeError(f"the provider {provider.name!r}, as overridden, depends on itself")
        if cache and provider.key in shared:
            return shared[provider.key]
        inner = (*path, provider)
        arguments = {name: place(*need, inner) for name, need in provider.needs.items()}
        # The recursion has already appended the providers that the current one needs, so the steps can run in their
        # order.
        steps.append(_Step(provider, arguments))
        if cache:
            shared[provider.key] = len(steps) - 1
        return len(steps) - 1

    parameters = {name: place(*need, ()) for name, need in needs.items()}
    # A sync provider runs where the function runs, as if the function had called it: in the event loop, or in the
    # thread of a sync function. So a blocking provider of a sync function blocks no other task, and objects bound to a
    # thread stay in it. Providers that an async provider needs run earlier, in the event loop.
    early = set(range(len(steps)))
    if not is_async:
        early = {number for number in early if steps[number].provider.kind in _IN_THE_LOOP}
        # A step only needs earlier ones, so one pass backwards finds everything that async providers need.
        for number in reversed(range(len(steps))):
            if number in early:
                early.update(steps[number].arguments.values())
    numbers = range(len(steps))
    return _Plan(steps, parameters, [n for n in numbers if n in early], [n for n in numbers if n not in early])


@attrs.frozen(eq=False)
class Dependencies:
    """The dependencies of one function, and the plan for calling their providers."""

    _what: str
    _needs: Needs
    _is_async: bool
    _surroundings: Surroundings
    _plan: _Plan

    async def call(self, context: object, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Fill the parameters, call the function, and exit the providers' context managers in reverse order.

        The context managers see the exception that ended the function, including `trio.Cancelled`.

        Args:
            context: The context, for providers that take it.
            function: The function that has these dependencies.
            arguments, named: The function's other arguments.
        """
        # The plan is made once, at registration; only overrides, which are for tests, need a new plan for each call.
        overrides = self._surroundings.overrides.active
        plan = make_plan(self._needs, self._is_async, overrides) if overrides else self._plan
        values: list[Any] = [None] * len(plan.steps)  # the values, by the number of the step

        def ready() -> Any:
            provided = {name: values[number] for name, number in plan.parameters.items()}
            return function(*arguments, **{**named, **provided})

        # This stack is outside the thread: the context managers of async providers are exited when the thread has
        # ended, or when a cancellation has abandoned it.
        async with contextlib.AsyncExitStack() as stack:
            for number in plan.in_loop:
                kind, value = _provided(plan.steps[number], values, context)
                if kind is ProviderKind.ASYNC_MANAGER:
                    value = await stack.enter_async_context(value)
                elif kind is ProviderKind.MANAGER:
                    value = stack.enter_context(value)
                elif kind is ProviderKind.AWAITED:
                    value = await value
                values[number] = value
            if self._is_async:
                return await ready()
            # Context managers are entered and exited inside the thread, so even an abandoned thread cleans up.
            return await self._surroundings.threads.call(self._in_thread, plan, values, context, ready)
        raise self._swallowed()  # only reached if a context manager has suppressed an exception

    def _in_thread(self, plan: _Plan, values: list[Any], context: object, ready: Callable[[], Any]) -> Any:
        with contextlib.ExitStack() as stack:
            # An awaitable result is fine if no context manager was entered, because then nothing is closed before the
            # result is awaited.
            entered = False
            for number in plan.in_thread:
                kind, value = _provided(plan.steps[number], values, context)
                if kind is ProviderKind.MANAGER:
                    value, entered = stack.enter_context(value), True
                values[number] = value
            value = ready()
            if entered and inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()  # or Python would warn about an unawaited coroutine
                raise TypeError(
                    f"{self._what} is a sync function that returns an awaitable, but the values of its providers are "
                    "closed before the awaitable is awaited; make the function async"
                )
            return value
        raise self._swallowed()

    def _swallowed(self) -> RuntimeError:
        return RuntimeError(
            f"{self._what}: a provider suppressed the exception that the function raised, so there is no result; a "
            "provider may raise another exception, but must not suppress one"
        )


def _provided(step: _Step, values: list[Any], context: object) -> tuple[ProviderKind, Any]:
    provider = step.provider
    given = {name: values[number] for name, number in step.arguments.items()}
    if provider.context_parameter is not None:
        given[provider.context_parameter] = context
    return provider.kind, provider.function(**given)


def read_dependencies(
    markers: Mapping[str, Depends], is_async: bool, surroundings: Surroundings, what: str
) -> Dependencies:
    """Return the dependencies of a function from the markers of its parameters.

    Raises:
        TypeError: If a provider can't be used; the message names the provider and the parameter, and says why.
    """
    known: dict[object, Provider] = {}
    needs = {
        name: (
            _read(marker.provider, surroundings.context_type, f"{what}: the parameter {name!r}", known, ()),
            marker.cache,
        )
        for name, marker in markers.items()
    }
    return Dependencies(what, needs, is_async, surroundings, make_plan(needs, is_async, {}))


def stand_in_for(
    provider: Callable[..., Any], other: Callable[..., Any], context_type: type
) -> tuple[object, Provider]:
    """Read a stand-in for a provider; see `Server.override`.

    Returns:
        The entry to pass to `Overrides.replaced`.

    Raises:
        TypeError: If the stand-in can't be used.
    """
    return _key_of(provider), _read(other, context_type, "override", {}, ())
