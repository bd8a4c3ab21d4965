"""Tables of public async functions: calls that must be checkpoints, and calls that can be cancelled at any step."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

import trio
import trio.testing

from tests.injection import cancel_everywhere
from tests.peer import settle

T = TypeVar("T")
Function = Callable[..., Any]


class Check:
    """Checks that a call of a row's function is a checkpoint: it lets other tasks run, and can be cancelled.

    As in Trio, a call that raises need not be one.

    Attributes:
        function: The function.
        count: How many calls it has seen.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.count = 0
        self._code = inspect.unwrap(function).__code__

    async def __call__(self, call: Awaitable[T]) -> T:
        """Await a call."""
        if inspect.iscoroutine(call):
            self._is_of_the_row(call.cr_code)
        self.count += 1
        with trio.testing.assert_checkpoints():
            return await call

    def block(self, manager: AbstractAsyncContextManager[T]) -> AbstractAsyncContextManager[T]:
        """Enter and leave a block: both must be checkpoints."""
        if inspect.isasyncgen(generator := getattr(manager, "gen", None)):
            self._is_of_the_row(generator.ag_code)
        self.count += 1
        return _Block(manager)

    async def loop(self, iterable: AsyncIterable[T]) -> list[T]:
        """Iterate to the end: each step must be a checkpoint, including the one that finds the end."""
        self.count += 1
        iterator = aiter(iterable)
        items: list[T] = []
        while True:
            with trio.testing.assert_checkpoints():
                try:
                    items.append(await anext(iterator))
                except StopAsyncIteration:
                    ended = True
                else:
                    ended = False
            if ended:
                return items

    def _is_of_the_row(self, code: object) -> None:
        # What only hands on what another function makes has a code of its own.
        if self._code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            assert code is self._code, f"the row calls {code}, not {self._code}"


class _Block(AbstractAsyncContextManager[T], Generic[T]):
    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._entered_by_a_checkpoint = False

    async def __aenter__(self) -> T:
        entered: list[T] = []
        try:
            with trio.testing.assert_checkpoints():
                entered.append(await self._manager.__aenter__())
        except AssertionError:
            if not entered:
                raise
        else:
            self._entered_by_a_checkpoint = True
        return entered[0]  # what is entered must be left, whatever is wrong with it

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        with trio.testing.assert_checkpoints():
            suppressed = await self._manager.__aexit__(kind, exc, traceback)
        assert self._entered_by_a_checkpoint, "entering is not a checkpoint"
        return suppressed


class Row:
    """One way through a function.

    Attributes:
        function: The function.
        run: Calls the function that way.
    """

    def __init__(self, function: Function, way: str, run: Callable[..., Awaitable[None]]) -> None:
        self.function = function
        self.run = run
        self._way = way

    def __str__(self) -> str:
        return f"{self.function.__qualname__}, {self._way}"


CALLS: list[Row] = []
"""Each ``run`` takes the `Check` of its function."""

EFFECTS: list[Row] = []
"""Each ``run`` takes nothing: it cancels the function before the effect, or at each step of the way."""


def _table(rows: list[Row]) -> Callable[[Function, str], Callable[[Callable[..., Awaitable[None]]], Any]]:
    def row(function: Function, way: str) -> Callable[[Callable[..., Awaitable[None]]], Any]:
        def register(run: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
            rows.append(Row(function, way, run))
            return run

        return register

    return row


call, effect = _table(CALLS), _table(EFFECTS)


async def cancelled_before(awaitable: Awaitable[object]) -> None:
    """Await something in a scope that is already cancelled; it must raise `Cancelled`."""
    with trio.CancelScope() as scope:
        scope.cancel("cancelled before")
        await awaitable
    assert scope.cancelled_caught, "it did not find out that it is cancelled"


async def not_entered(manager: AbstractAsyncContextManager[object]) -> None:
    """Enter a block in a scope that is already cancelled; its body must not run."""
    inside = False
    with trio.CancelScope() as scope:
        scope.cancel("cancelled before")
        async with manager:
            inside = True
    assert scope.cancelled_caught
    assert not inside, "it was entered"


async def all_or_nothing(
    change: Callable[[int], Awaitable[object]],
    state: Callable[[], Awaitable[Any]],
    expected: Callable[[int], object] = lambda done: done,
) -> None:
    """Cancel a change before it starts and at each of its steps: if it returns it was made, otherwise nothing was.

    Args:
        change: Makes it; gets its number, from 1.
        state: Shows what has been changed.
        expected: What ``state`` shows after that many changes.
    """
    done = 0

    async def scenario() -> None:
        nonlocal done
        await change(done + 1)
        done += 1

    async def agrees() -> None:
        await settle()
        assert await state() == expected(done)

    await cancelled_before(scenario())
    await agrees()
    await cancel_everywhere(scenario, agrees)
    assert done
