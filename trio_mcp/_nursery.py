"""Manages objects that have background tasks: their nursery, the block around them, and how they are closed."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._log import logger
from trio_mcp.errors import LocalProtocolError, TrioMcpError

__all__ = [
    "EnteredOnce",
    "background_nursery",
    "closing",
    "drop_inner_frames",
    "interruption_in",
    "is_raised_inside",
    "outer_frames",
    "start",
    "without_cancellation",
]


@contextlib.asynccontextmanager
async def closing(close: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Call `close` at the end of the block, however it ends, and raise the gravest exception.

    ``finally: await close()`` could lose an exception: in a cancelled scope, the close raises `Cancelled` in place of
    what the block raised, Ctrl-C included. This context manager raises the block's own exception, except that Ctrl-C
    and `SystemExit` take precedence over everything, and any failure over a cancellation. A failure of the close that
    is not raised is logged.
    """
    # A `finally` block would not be enough, because an exception from the block has to be compared with an exception
    # from the close.
    try:
        yield
    except BaseException as exc:
        try:
            await close()
        except BaseException as later:
            if _is_graver(later, exc):
                raise
            if (failure := without_cancellation(later)) is not None:
                logger.error("closing failed after the block had raised %r", exc, exc_info=failure)
        raise
    else:
        await close()


def _is_graver(later: BaseException, earlier: BaseException) -> bool:
    """Return whether an exception that closing has raised takes precedence over the one from the block."""
    # An exception other than `Cancelled` either is a failure or ends the program (Ctrl-C, `SystemExit`). An exception
    # that ends the program always takes precedence; a failure does so only if the block raised nothing but `Cancelled`.
    rest = without_cancellation(later)
    return rest is not None and (not isinstance(rest, Exception) or without_cancellation(earlier) is None)


@contextlib.asynccontextmanager
async def background_nursery(close: Callable[[], Awaitable[object]] | None = None) -> AsyncIterator[trio.Nursery]:
    """Open a nursery that ends with its block: leaving the block cancels the tasks that are still running.

    The nursery is an implementation detail of the caller, so an exception raised in the block is propagated
    as the very same object: it does not pass through the nursery, which would wrap it or rebuild a group. If a
    background task fails, the block is cancelled and the task's exception is raised. A `KeyboardInterrupt` or
    `SystemExit` from a task is raised without a group around it; everything else that was raised becomes its cause.

    Args:
        close: Called at the end of the block, however it ends, before the remaining tasks are cancelled; see `closing`.
    """
    raised: BaseException | None = None
    failures: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            try:
                async with contextlib.nullcontext() if close is None else closing(close):
                    yield nursery
            except BaseException as exc:
                # The exception is kept, and raised outside the nursery, because the nursery would wrap it in a group.
                raised = exc
            # The tasks are cancelled only after the close, which may need them: a writer, for example, still has to
            # write the last messages.
            nursery.cancel_scope.cancel("the block that these background tasks belong to has ended")
            if raised is not None and without_cancellation(raised) is not raised:
                # A `Cancelled` has to go through the nursery: the scope that it belongs to may be the nursery's own (if
                # a task has failed), which then absorbs it. Only the scope itself can tell whether the `Cancelled`
                # belongs to it.
                passing, raised = raised, None
                raise passing
    except trio.Cancelled as exc:
        raised = exc if raised is None else raised
    except BaseExceptionGroup as group:
        # The group may contain the block's own `Cancelled` as well as failures of tasks; only the failures are kept.
        left = [without_cancellation(member) for member in group.exceptions]
        failures = [failure for failure in left if failure is not None]
        if not failures and raised is None:
            raised = group
    if failures:
        # A task's failure takes precedence over a cancellation of the block; any other exception from the block is
        # raised in a group with the failure.
        if raised is not None and not isinstance(raised, trio.Cancelled):
            failures.insert(0, raised)
        raised = failures[0] if len(failures) == 1 else BaseExceptionGroup("background tasks failed", failures)
        # Ctrl-C is not raised in a group, because `except KeyboardInterrupt` would not catch a group.
        interruption = interruption_in(raised)
        if interruption is not None and interruption is not raised:
            raise interruption from raised
    if raised is not None:
        raise raised


def interruption_in(exc: BaseException) -> BaseException | None:
    """Return the `KeyboardInterrupt` or `SystemExit` that an exception is, or that a group contains; otherwise None."""
    if isinstance(exc, BaseExceptionGroup):
        return next(filter(None, map(interruption_in, exc.exceptions)), None)
    return None if isinstance(exc, Exception | trio.Cancelled) else exc


async def start(nursery: trio.Nursery, function: Callable[..., Awaitable[object]]) -> Any:
    """Start a task as `trio.Nursery.start` does, but safely even in the main task, where Ctrl-C may be raised."""
    # Trio (0.35.0) raises Ctrl-C in the main task. If that task is in `Nursery.start` at that time, and the starting
    # task also ends with an exception, such as an outer cancellation, Trio fails with a `TrioInternalError`. Therefore,
    # `Nursery.start` is called in another task.
    value: Any = None
    started = trio.Event()

    async def wait_in_its_place() -> None:
        nonlocal value
        value = await nursery.start(function)
        started.set()

    # Cancelling this wait cancels the other task as well, and with it the function that is being started.
    async with background_nursery() as waiting:
        waiting.start_soon(wait_in_its_place)
        await started.wait()
    return value


def without_cancellation(exc: BaseException) -> BaseException | None:
    """Return an exception without the `Cancelled`s in it: the same object if it has none, None if nothing remains."""
    if isinstance(exc, BaseExceptionGroup):
        matched, rest = exc.split(trio.Cancelled)
        # If there is nothing to take out, the same object is returned: callers compare by identity.
        return exc if matched is None else rest
    return None if isinstance(exc, trio.Cancelled) else exc


class EnteredOnce(abc.ABC):
    """A base class of async context managers that can be entered only once; a subclass implements the whole lifetime as
    one context manager."""

    _lifetime_manager: contextlib.AbstractAsyncContextManager[None] | None = None
    _entered_in: trio.lowlevel.Task | None = None

    @abc.abstractmethod
    def _lifetime(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context manager for the whole lifetime of the object, from entering it to leaving it."""

    async def __aenter__(self) -> Self:
        check_on_trio()
        if self._lifetime_manager is not None:
            raise LocalProtocolError(f"a {type(self).__name__} can be entered only once; make another one")
        self._lifetime_manager = self._lifetime()
        self._entered_in = trio.lowlevel.current_task()
        try:
            await self._lifetime_manager.__aenter__()
        except TrioMcpError as exc:
            # Some twenty internal frames would bury the error message, which says all that a user needs to know.
            logger.debug("entering a %s failed", type(self).__name__, exc_info=exc)
            drop_inner_frames(exc)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._lifetime_manager is not None
        assert self._entered_in is not None
        if trio.lowlevel.current_task() is not self._entered_in:
            # If another task closed the object's nursery, Trio would report a corrupted internal state.
            text = f"a {type(self).__name__} must be left in the task that entered it, {self._entered_in.name!r}"
            if (aclose := getattr(self, "aclose", None)) is not None:
                await aclose()
                text += "; it is closed now; to close it from another task, call aclose()"
            raise LocalProtocolError(text)
        return await self._lifetime_manager.__aexit__(kind, exc, traceback)


def drop_inner_frames(exc: BaseException) -> None:
    """Remove the frames of this library and of Trio, except for the last frame, from the tracebacks of an exception and
    its causes."""
    behind: BaseException | None = exc
    while behind is not None:
        # When a task fails, the other tasks are cancelled. Their `Cancelled` says nothing about the failure, so it is
        # dropped.
        if isinstance(behind.__context__, trio.Cancelled):
            behind.__context__ = None
        behind.__traceback__ = outer_frames(behind.__traceback__)
        behind = behind.__cause__


def outer_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this library and of Trio, except for the last frame."""
    steps = _steps(traceback)
    kept: TracebackType | None = None
    for step in reversed([step for step in steps[:-1] if not _is_inner(step)] + steps[-1:]):
        kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return kept


def is_raised_inside(exc: BaseException) -> bool:
    """Return whether an exception was raised by this library or Trio, and not by a caller's function."""
    steps = _steps(exc.__traceback__)
    return bool(steps) and _is_inner(steps[-1])


def _steps(traceback: TracebackType | None) -> list[TracebackType]:
    steps = []
    while traceback is not None:
        steps.append(traceback)
        traceback = traceback.tb_next
    return steps


def _is_inner(step: TracebackType) -> bool:
    module = str(step.tb_frame.f_globals.get("__name__"))
    return module.partition(".")[0] in {"trio_mcp", "trio", "outcome", "contextlib", "attr"}
