"""The lifetime of what has background tasks: a nursery for them, a block that surrounds them, and how it is closed."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import trio

from trio_mcp._log import logger
from trio_mcp.errors import LocalProtocolError

__all__ = ["EnteredOnce", "background_nursery", "closing", "start", "without_cancellation"]


@contextlib.asynccontextmanager
async def closing(close: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """A block that is closed however it ends, and out of which the gravest exception comes.

    ``finally: await close()`` would lose one: in a cancelled scope the close raises `Cancelled` in place of whatever
    was raised, Ctrl-C included. Here the block's own exception leaves, except that Ctrl-C, or the end of the program,
    passes everything, and any failure passes a cancellation. A failure that is passed over is logged.
    """
    try:
        yield
    except BaseException as exc:
        try:
            await close()
        except BaseException as later:
            if _is_graver(later, exc):
                raise
            if (failure := without_cancellation(later)) is not None:
                logger.error("what was to be closed after %r failed", exc, exc_info=failure)
        raise
    else:
        await close()


def _is_graver(later: BaseException, earlier: BaseException) -> bool:
    rest = without_cancellation(later)
    return rest is not None and (not isinstance(rest, Exception) or without_cancellation(earlier) is None)


@contextlib.asynccontextmanager
async def background_nursery(close: Callable[[], Awaitable[object]] | None = None) -> AsyncIterator[trio.Nursery]:
    """A nursery that ends with its block: leaving it cancels what still runs.

    The nursery is an implementation detail of whoever opens it, so what was raised in the block leaves it as the very
    object that it was: it does not travel through the nursery, which would wrap it, or rebuild a group. If a background
    task fails, the block is cancelled, and the task's exception leaves it. Ctrl-C that a task got, or the end of the
    program, leaves as itself, with whatever else was raised as its cause.

    Args:
        close: Called at the end of the block, however it ends, before what still runs is cancelled; see `closing`.
    """
    raised: BaseException | None = None
    failures: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            try:
                async with contextlib.nullcontext() if close is None else closing(close):
                    yield nursery
            except BaseException as exc:
                raised = exc  # raised again below, outside of the nursery
            nursery.cancel_scope.cancel("the block that these background tasks belong to has ended")
            if raised is not None and _is_cancellation(raised):
                # Only the scope it belongs to, which may be the nursery's own, can tell whether it goes further.
                passing, raised = raised, None
                raise passing
    except trio.Cancelled as exc:
        raised = exc if raised is None else raised
    except BaseExceptionGroup as group:
        left = [without_cancellation(member) for member in group.exceptions]
        failures = [failure for failure in left if failure is not None]
        if not failures and raised is None:
            raised = group
    if failures:
        if raised is not None and not isinstance(raised, trio.Cancelled):
            failures.insert(0, raised)
        raised = failures[0] if len(failures) == 1 else BaseExceptionGroup("background tasks failed", failures)
        interruption = _interruption_in(raised)
        if interruption is not None and interruption is not raised:
            raise interruption from raised
    if raised is not None:
        raise raised


def _interruption_in(exc: BaseException) -> BaseException | None:
    """What ends the program, in a group or alone."""
    if isinstance(exc, BaseExceptionGroup):
        return next(filter(None, map(_interruption_in, exc.exceptions)), None)
    return None if isinstance(exc, Exception) else exc


async def start(nursery: trio.Nursery, function: Callable[..., Awaitable[object]]) -> Any:
    """As `trio.Nursery.start`, wherever the main task may wait for it.

    Trio raises Ctrl-C in the main task. If that waits in `Nursery.start`, and what it starts ends with an exception as
    well, such as a cancellation from outside, that raises `TrioInternalError`. So a task between the two waits there.
    """
    value: Any = None
    started = trio.Event()

    async def wait_in_its_place() -> None:
        nonlocal value
        value = await nursery.start(function)
        started.set()

    async with background_nursery() as waiting:
        waiting.start_soon(wait_in_its_place)
        await started.wait()
    return value


def without_cancellation(exc: BaseException) -> BaseException | None:
    """What is left of an exception when every `Cancelled` is taken out; the very object if there is none in it."""
    if isinstance(exc, BaseExceptionGroup):
        matched, rest = exc.split(trio.Cancelled)
        return exc if matched is None else rest
    return None if isinstance(exc, trio.Cancelled) else exc


def _is_cancellation(exc: BaseException) -> bool:
    """Whether there is a `Cancelled` in it."""
    return without_cancellation(exc) is not exc


class EnteredOnce(abc.ABC):
    """An object that is its own async context manager, once; its lifetime is written as one function."""

    _lifetime_manager: contextlib.AbstractAsyncContextManager[None] | None = None

    @abc.abstractmethod
    def _lifetime(self) -> contextlib.AbstractAsyncContextManager[None]:
        """The block: what happens before it, and after it."""

    async def __aenter__(self) -> Self:
        if self._lifetime_manager is not None:
            raise LocalProtocolError(f"a {type(self).__name__} can be entered only once; make another one")
        self._lifetime_manager = self._lifetime()
        await self._lifetime_manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._lifetime_manager is not None
        return await self._lifetime_manager.__aexit__(kind, exc, traceback)
