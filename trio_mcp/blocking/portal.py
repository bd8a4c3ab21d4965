"""A thread in which Trio runs, and the calls of other threads that run in it."""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

import trio

from trio_mcp._checks import running_loop
from trio_mcp._log import logger
from trio_mcp.errors import LocalProtocolError, SessionClosed

__all__ = ["MOST_CALLS", "Portal"]

T = TypeVar("T")

MOST_CALLS: Final = 1000
"""How many calls of one client may be under way at once (arbitrary): a thread waits for each."""

START: Final = 1.0
"""Seconds that a thread takes at most to start (arbitrary)."""

_within: contextvars.ContextVar[Portal | None] = contextvars.ContextVar("trio_mcp_portal", default=None)
"""The portal one of whose callbacks is running."""


class _Call(Generic[T]):
    """An async function that runs in the portal's thread while another thread waits for it."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._value: T | None = None
        self._error: BaseException | None = None
        # Trio's thread has the lock until the call is over. A lock costs a third of what an event does.
        self.over = threading.Lock()
        self.over.acquire()
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        """Run the function; called in the portal's thread."""
        self._error = SessionClosed("the call was cancelled, because the client was closed")
        try:
            with self.scope:
                try:
                    self._value = await self._function()
                    self._error = None
                except trio.Cancelled:
                    raise
                except BaseException as exc:  # a callback may even end the program: that is for the caller's thread
                    self._error = exc
        finally:
            self.finish(self._error)

    def finish(self, error: BaseException | None) -> None:
        """End the call; called in the portal's thread, or where that has ended."""
        self._error = error
        self.over.release()

    def result(self) -> T:
        """Return what the function has returned, or raise what it has raised."""
        error, self._error = self._error, None  # with the traceback, it would be part of a cycle
        try:
            if error is not None:
                raise error
            return cast("T", self._value)
        finally:
            del error


class _Block(_Call[None], Generic[T]):
    """An async context manager that is entered and left by one task, for a block in another thread."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        super().__init__(self._hold)
        self._manager = manager
        self._leave = trio.Event()
        self.entered: list[T] = []
        self.ready = threading.Lock()  # held until the block was entered, or is over
        self.ready.acquire()

    async def _hold(self) -> None:
        async with self._manager as value:
            self.entered.append(value)
            self.ready.release()
            await self._leave.wait()

    def leave(self) -> None:
        """Leave the block; called in the portal's thread."""
        self._leave.set()

    def finish(self, error: BaseException | None) -> None:
        super().finish(error)
        if not self.entered:
            self.ready.release()


class Portal:
    """A thread that runs Trio while a block lasts.

    Args:
        owner: The name of the class that has the block, for messages.
        grace: Seconds that what runs has to end once it was interrupted.
    """

    def __init__(self, owner: str, grace: float) -> None:
        self._owner, self._grace, self._pid = owner, grace, os.getpid()
        self._scope = trio.CancelScope()
        self._leave = trio.Event()
        self._thread: threading.Thread | None = None
        self._whole: _Call[None] | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._ending = False  # set before anything is asked of the thread, which may not have come so far to hear it
        self._started = False
        self._launched = threading.Lock()  # held until the thread was started, or could not be
        self._launched.acquire()
        self._ready = threading.Lock()  # held until the resource was entered, or could not be
        self._ready.acquire()
        # Those of Trio are few, and it needs them itself, to look up the names of hosts, for example.
        self._threads = trio.CapacityLimiter(MOST_CALLS)
        self._calls: trio.Nursery | None = None  # None before the resource was entered
        self._count = 0

    # --- the thread --------------------------------------------------------------------------------------------------

    def start(self, resource: AbstractAsyncContextManager[Any]) -> None:
        """Start the thread, and enter a resource, which is left at the end.

        Raises:
            LocalProtocolError: If this is not the first time, or the portal was made in another process.
            RuntimeError: If an event loop runs in the caller's thread.
            Exception: Whatever entering raises.
        """
        self._check_caller()
        if self._thread is not None:
            raise LocalProtocolError(f"a {self._owner} can be entered only once; make another one")
        self._whole = _Call(partial(self._serve, resource))
        self._thread = threading.Thread(target=trio.run, args=(self._whole.run,), name=f"Trio of a {self._owner}")
        try:
            # If Ctrl-C strikes in Thread.start, the thread may wait forever, or never come to be and yet be listed.
            _thread.start_new_thread(self._launch, (self._thread, self._whole))
            self._ready.acquire()
        except BaseException:  # Ctrl-C
            self._cancel()
            self._join()
            raise
        if self._calls is None:
            self._join()
            self._whole.result()

    def _launch(self, thread: threading.Thread, whole: _Call[None]) -> None:
        """Start the thread; called in another one, which Ctrl-C does not strike."""
        try:
            _end_with_the_program(self)
            thread.start()
            self._started = True
        except RuntimeError as exc:  # there are too many threads, or the interpreter ends
            whole.finish(exc)
            self._ready.release()
        finally:
            self._launched.release()

    def stop(self, *, failed: bool = False) -> None:
        """Leave the resource, and wait for the end of the thread.

        Ctrl-C cancels what still runs, and a second one does not wait for it. In a forked process, this does nothing.

        Args:
            failed: Whether the block has raised an exception, which must not be replaced.

        Raises:
            Exception: Whatever the thread has raised, unless the block has failed.
        """
        if os.getpid() != self._pid or self._thread is None:
            return
        assert self._whole is not None
        self._refuse_callbacks()
        self.leave()
        self._join()
        if not failed:
            self._whole.result()

    def leave(self) -> None:
        """Let the thread leave the resource, and don't wait for that."""
        if os.getpid() == self._pid:
            self._ending = True
            self._soon(self._leave.set)

    def _join(self) -> None:
        assert self._thread is not None
        # Ctrl-C may have struck while the thread was being started; if it starts later, it ends at once.
        if not self._started and not (self._launched.acquire(timeout=START) and self._started):
            return
        try:
            self._thread.join()
        except BaseException:
            self._cancel()
            self._thread.join()
            raise

    def _cancel(self) -> None:
        self._ending = True
        self._soon(partial(self._scope.cancel, "interrupted"))

    async def _serve(self, resource: AbstractAsyncContextManager[Any]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        failure: BaseException | None = None
        try:
            with self._scope:
                if self._ending:
                    return
                async with trio.open_nursery() as calls:
                    try:
                        async with resource:
                            self._calls = calls
                            self._ready.release()
                            await self._leave.wait()
                    except Exception as exc:  # raised below, without the group of the nursery
                        failure = exc
                    finally:
                        self._leave.set()
                        calls.cancel_scope.deadline = trio.current_time() + self._grace
        finally:
            if self._calls is None:
                self._ready.release()
        if failure is not None:
            raise failure

    def leave_with_the_program(self) -> None:
        """Leave the block, as the main thread has ended: the interpreter waits for this portal's thread."""
        if self._thread is not None and self._thread.is_alive() and not self._leave.is_set():
            logger.warning("the program has ended while a %s was open: use it in a with block", self._owner)
            self.leave()

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the thread, and return what it returns.

        Ctrl-C cancels it, and waits for its end for ``grace`` seconds; a second one does not wait.

        Raises:
            LocalProtocolError: If the block was not entered, or in another process; in a callback; if `MOST_CALLS` are
                under way.
            SessionClosed: If the block has ended.
            RuntimeError: If an event loop runs in the caller's thread.
            BaseException: Whatever the function raises.
        """
        call = _Call(function)
        self._run(call, call.over)
        return call.result()

    def _run(self, call: _Call[Any], until: threading.Lock) -> None:
        self._check_caller()
        if self._thread is None:
            raise LocalProtocolError(f"this {self._owner} is not connected: use it in its with block")
        asked = False
        try:
            self._soon(partial(contextvars.copy_context().run, self._begin, call), call)
            asked = True
            until.acquire()
        except BaseException:  # Ctrl-C, which is raised in the main thread only
            self._soon(partial(call.scope.cancel, "the call was interrupted"))
            if asked:
                call.over.acquire(timeout=self._grace)
            raise

    def _begin(self, call: _Call[Any]) -> None:
        if self._calls is None or self._leave.is_set():
            call.finish(SessionClosed(f"the {self._owner} is closed"))
        elif self._count >= MOST_CALLS:
            call.finish(
                LocalProtocolError(f"{MOST_CALLS} calls of this {self._owner} are under way: start fewer threads")
            )
        else:
            self._count += 1
            self._calls.start_soon(self._counted, call)

    async def _counted(self, call: _Call[Any]) -> None:
        try:
            await call.run()
        finally:
            self._count -= 1

    def _soon(self, function: Callable[[], object], call: _Call[Any] | None = None) -> None:
        """Call a function in the thread; if that has ended, end a call with an error."""
        try:
            if self._token is not None:
                self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            if call is not None:
                call.finish(SessionClosed(f"the {self._owner} is closed"))

    def _check_caller(self) -> None:
        if os.getpid() != self._pid:
            raise LocalProtocolError(
                f"this {self._owner} was made in process {self._pid}, and a fork has none of its threads: make one in"
                " each process after the fork, or let multiprocessing use the method 'spawn'"
            )
        self._refuse_callbacks()
        if (loop := running_loop()) is not None and not _is_notebook():
            advice = {
                "trio": "use trio_mcp.Client",
                "asyncio": "call it by asyncio.to_thread, or run Trio as its guest (see how-to/guest_mode)",
            }.get(loop, "call it in another thread")
            raise RuntimeError(f"a blocking {self._owner} would stop the loop of {loop} in this thread: {advice}")

    def _refuse_callbacks(self) -> None:
        if _within.get() is self or self._thread is threading.current_thread():
            raise LocalProtocolError(
                f"a callback can't use the {self._owner} that waits for it: return from it first, or leave the work to"
                " another thread"
            )

    # --- blocks, iterators, callbacks --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def block(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an async context manager in the thread, and leave it in the same task at the end of the block.

        The exceptions are those of `call`, and what the manager raises.
        """
        block = _Block(manager)
        self._run(block, block.ready)
        if not block.entered:
            block.over.acquire()
            block.result()
        try:
            yield block.entered[0]
        finally:
            self._soon(block.leave)
            block.over.acquire()
        block.result()

    def iterate(self, items: AsyncGenerator[T]) -> Iterator[T]:
        """Iterate over what an async generator yields in the thread. The exceptions are those of `call`."""
        try:
            while True:
                try:
                    item = self.call(items.__anext__)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._soon(partial(self._close, items))

    def _close(self, items: AsyncGenerator[Any]) -> None:
        # Otherwise Trio would warn of a generator that is collected half-read. At its end, it closes all the others.
        if self._calls is not None and not self._leave.is_set():
            self._calls.start_soon(items.aclose)

    def in_thread(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return an async function that calls a plain one in a thread of its own, so that it may block."""

        async def call(*args: Any) -> Any:
            mark = _within.set(self)
            try:
                return await trio.to_thread.run_sync(
                    partial(function, *args), abandon_on_cancel=True, limiter=self._threads
                )
            finally:
                _within.reset(mark)

        return call


_open = weakref.WeakSet[Portal]()
_watched_in = 0  # the process that has the thread which waits for the main thread


def _end_with_the_program(portal: Portal) -> None:
    """Let a portal end with the main thread."""
    global _watched_in
    _open.add(portal)
    if _watched_in != os.getpid():  # one thread for all of them; a fork has none
        _watched_in = os.getpid()
        threading.Thread(target=_wait_for_the_program, name="trio_mcp.blocking", daemon=True).start()


def _wait_for_the_program() -> None:
    # The main thread counts as ended before the interpreter waits for the other threads.
    threading.main_thread().join()
    for portal in tuple(_open):
        portal.leave_with_the_program()


def _is_notebook() -> bool:
    """Return whether this is the kernel of a notebook: each cell runs in its loop, and may block it."""
    shell = sys.modules.get("IPython")
    return "ipykernel" in sys.modules and shell is not None and shell.get_ipython() is not None
