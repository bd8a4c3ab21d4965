"""Dependencies: calling a function whose parameters providers fill, after them and inside what they have entered."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_mcp.server.functions.providers import Depends, Kind, Needs, Provider, read_needs

if TYPE_CHECKING:
    from trio_mcp.server.core import ServerCore

__all__ = ["Dependencies", "Dependent", "read_dependencies"]

_IN_THE_LOOP = (Kind.AWAITED, Kind.ASYNC_MANAGER)


@attrs.frozen(eq=False)
class _Step:
    provider: Provider
    arguments: dict[str, int]  # which step gives each


@attrs.frozen(eq=False)
class _Plan:
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
    _plan: _Plan

    def bind(self, ready: Callable[[dict[str, Any]], Callable[[], Any]], context: object) -> Dependent:
        """One call of the function.

        Args:
            ready: Gives what is to be called, for the values of the parameters that are filled.
            context: What providers get that ask for it.
        """
        return Dependent(self, ready, context)


@attrs.frozen(eq=False)
class Dependent:
    """One call of a function that has dependencies: its arguments are checked, its providers have yet to be called."""

    _of: Dependencies
    _ready: Callable[[dict[str, Any]], Callable[[], Any]]
    _context: object

    async def run(self, server: ServerCore) -> Any:
        """Fill the parameters, call the function, and leave what was entered, in reverse order.

        What has been entered sees the exception that ended the function, `trio.Cancelled` included.
        """
        of = self._of
        plan = make_plan(of._needs, of._is_async, server._overrides) if server._overrides else of._plan
        values: list[Any] = [None] * len(plan.steps)
        async with contextlib.AsyncExitStack() as stack:
            for number in plan.in_loop:
                kind, value = self._provided(plan.steps[number], values)
                if kind is Kind.ASYNC_MANAGER:
                    value = await stack.enter_async_context(value)
                elif kind is Kind.MANAGER:
                    value = stack.enter_context(value)
                elif kind is Kind.AWAITED:
                    value = await value
                values[number] = value
            if of._is_async:
                return await self._function(plan, values)()
            # As in `handling.run`. The thread leaves what it has entered, also when nobody waits for it any more.
            (value,) = await trio.to_thread.run_sync(
                self._run_in_thread, plan, values, abandon_on_cancel=True, limiter=server.sync_limiter
            )
            return await value if inspect.isawaitable(value) else value
        raise self._swallowed()

    def _run_in_thread(self, plan: _Plan, values: list[Any]) -> tuple[Any]:
        with contextlib.ExitStack() as stack:
            entered = False
            for number in plan.in_thread:
                kind, value = self._provided(plan.steps[number], values)
                if kind is Kind.MANAGER:
                    value, entered = stack.enter_context(value), True
                values[number] = value
            value = self._function(plan, values)()
            if entered and inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise TypeError(
                    f"{self._of._what} is a sync function that returns something to await, and what its providers gave "
                    "it would be closed by then; make it an async function"
                )
            return (value,)
        raise self._swallowed()

    def _provided(self, step: _Step, values: list[Any]) -> tuple[Kind, Any]:
        provider = step.provider
        given = {name: values[number] for name, number in step.arguments.items()}
        if provider.context_parameter is not None:
            given[provider.context_parameter] = self._context
        return provider.kind, provider.function(**given)

    def _function(self, plan: _Plan, values: list[Any]) -> Callable[[], Any]:
        return self._ready({name: values[number] for name, number in plan.parameters.items()})

    def _swallowed(self) -> RuntimeError:
        return RuntimeError(
            f"{self._of._what}: a provider swallowed the exception that ended it, so there is no result; it may "
            "raise another exception, but not go on as if there had been none"
        )


def read_dependencies(markers: Mapping[str, Depends], is_async: bool, context_type: type, what: str) -> Dependencies:
    """What a function depends on; ``is_async`` says whether it is async. Otherwise as `read_needs`."""
    needs = read_needs(markers, context_type, what)
    return Dependencies(what, needs, is_async, make_plan(needs, is_async, {}))
