"""One run of a function that may become a task, or continues one: its lease, its journal, its rounds of input.

Until the task is created, the request that began the run waits for it, and cancels it. From then on the engine does,
which keeps the lease. When the function asks a question, the run ends, like a round of a call; the process that takes
up the answer begins a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import attrs
import trio
from pydantic_core import PydanticSerializationError, to_json

from trio_mcp._log import logger
from trio_mcp.errors import McpError
from trio_mcp.extensions.tasks.context import TaskContext
from trio_mcp.extensions.tasks.errors import ENDED
from trio_mcp.extensions.tasks.options import TaskOptions
from trio_mcp.extensions.tasks.records import (
    Journal,
    StoredCall,
    error_bytes,
    key_of,
    new_id,
    once_entry,
    owner_of,
    state_entry,
)
from trio_mcp.server.extensions import ExtensionRun
from trio_mcp.server.functions.function import Call, single
from trio_mcp.server.input.options import Asked, InputRequired
from trio_mcp.server.input.questions import InputRequest, UrlElicitationRequired
from trio_mcp.server.input.request_state import Question, RequestState
from trio_mcp.server.input.rounds import ReplayedRounds, earlier_rounds
from trio_mcp.server.log_messages import CURRENT
from trio_mcp.server.task_policy import TaskPolicy
from trio_mcp.session.handlers import error_for
from trio_mcp.stores.contract import JournalEntry, StaleWriter, StoreBusy, StoredTask, StoreError, StoreFull, Stores
from trio_mcp.types.error_codes import INTERNAL_ERROR, OVERLOADED

__all__ = ["TaskRun"]

QUIET = 0.5
"""Seconds between two changes of a task's message: a function may report progress more often than clients look."""

PAUSE = 1.0
"""Seconds between two attempts to write what must not be lost, while the store can't be used."""

CANCELLED = "cancelled by the client"

AS_CANCELLED: dict[str, Any] = {"status": "cancelled", "token": "", "message": CANCELLED, "cancelling": False}
"""The changes that end a task as cancelled."""

SUSPENDED: dict[str, Any] = {"resultType": "input_required"}


class EngineOfRun(Protocol):
    """The part of a `TaskEngine` that a run uses."""

    host: ExtensionRun
    stores: Stores
    options: TaskOptions
    running: dict[str, TaskRun]
    ending: bool

    def holds(self, run: TaskRun, before: float) -> None:
        """Keep the lease of a run."""

    def ended(self, run: TaskRun) -> None:
        """Forget a run that has ended."""

    def changed(self, task: StoredTask) -> None:
        """Tell those who wait for a task that it has changed."""

    async def confirmed(self, run: TaskRun) -> None:
        """Wait until the lease of a run is certain."""

    def scopes_of(self, name: object) -> frozenset[str]:
        """Return the scopes that a tool needs."""


class TaskRun:
    """A run of a tool's function that is, or may become, a task.

    Args:
        engine: The engine of the server's run.
        policy: The policy of the tool.
        task: The task; None if it is not created yet.
        journal: What earlier runs have learned.

    Attributes:
        task: The task as it was last read or written.
        id: The id of a task that this run creates; empty in a run that continues one.
        settled: Set when the run has created its task, or has ended without one.
        outcome: The result or the exception of a run that has ended without a task.
        scope: The scope of the function.
    """

    def __init__(
        self, engine: EngineOfRun, policy: TaskPolicy, task: StoredTask | None = None, journal: Journal | None = None
    ) -> None:
        self.engine = engine
        self.policy = policy
        self.task = task
        self.journal = Journal() if journal is None else journal
        self.id = new_id() if task is None else ""
        self.key = (key_of(self.id) or "") if task is None else task.key
        self.context: TaskContext
        self.settled = trio.Event()
        self.outcome: dict[str, Any] | Exception | None = None
        self.scope = trio.CancelScope()
        self._token = "" if task is None else task.token
        self._why: str | None = None
        self._lock = trio.Lock()  # held while the journal and the task are written
        self._questions: dict[str, InputRequest[Any]] | None = None
        self._rounds: TaskRounds | None = None
        self._unread = set(self.journal.answers)
        self._ahead = set(self.journal.memory)  # the steps of earlier runs that this one has not come to yet
        self._said: str | None = None
        self._speaking = False  # whether a message waits for its turn
        self._saying = -math.inf
        self._over = False
        self._refusal: McpError | None = None

    @property
    def name(self) -> str:
        """The name of the tool."""
        name: str = self.context.params["name"]
        return name

    @property
    def asks_as_task(self) -> bool:
        """Whether a question ends this run, and becomes one of the task's."""
        return self.task is not None or self.policy.mode != "manual"

    def step_key(self, name: str) -> str:
        """Return the key of a step; see `Context.step_key`."""
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {type(name).__name__}")
        return hashlib.sha256(f"{self.key}\0{name}".encode("utf-8", "backslashreplace")).hexdigest()[:32]

    # --- the life of the run -------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Run the function to its end, and store the outcome; called in a task of the server's run."""
        result: dict[str, Any] | Exception = SUSPENDED
        if self.context.elsewhere:  # a request's own task has set it
            CURRENT.set((self.context, trio.lowlevel.current_trio_token()))
        try:
            with self.scope:
                # A function that returns its questions starts afresh with each answer, and may look at any at once.
                if self.journal.explicit:
                    self._unread.clear()
                if self.task is not None and not self._unread:
                    await self.begin()
                result = await self.engine.host.call(self.context)
        except Exception as exc:
            result = single(exc)
        except BaseExceptionGroup as group:
            cancelled, failures = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failures, ExceptionGroup):
                raise
            logger.error("the tool %r failed when its task was cancelled", self.name, exc_info=failures)
        finally:
            # This also runs when the server ends: the lease must not stay behind.
            with trio.CancelScope(shield=True):
                try:
                    await self._end(result)
                finally:
                    self.engine.ended(self)

    async def _end(self, result: dict[str, Any] | Exception) -> None:
        if self._refusal is not None:
            result, self._questions = self._refusal, None
        async with self._lock:
            self._over = True
            if self._why is None:
                self._why = self._interruption(result)
            try:
                if self.task is None and self._questions is None:
                    self.outcome = result
                elif self.task is None:
                    await self._add(status="input_required", questions=self._questions)
                else:
                    await self._store(result)
            except StaleWriter:
                logger.warning("another process has taken over a task of the tool %r", self.name)
            except McpError as exc:
                self.outcome = exc
            except Exception as exc:
                self.outcome = McpError(INTERNAL_ERROR, "the server could not store the task; try again later")
                logger.error("a task of the tool %r could not be stored", self.name, exc_info=exc)
            self.settled.set()

    def _interruption(self, result: dict[str, Any] | Exception) -> str | None:
        """Return why the function has no outcome of its own; None if it has one, or has asked."""
        if self.scope.cancelled_caught:
            return "late"
        if result is SUSPENDED:
            return None if self._questions is not None else "ended"
        # The result of a function that was cancelled says nothing about the work that was to be done.
        failed = isinstance(result, Exception) or result.get("isError") is True
        return "late" if failed and self.scope.cancel_called else None

    async def _store(self, result: dict[str, Any] | Exception) -> None:
        """Store the outcome of a task, and try again for the length of a lease if the store can't be used."""
        # The lease is renewed meanwhile, if the store allows it; if it is lost, nothing is written any more.
        end = trio.current_time() + self.engine.options.lease
        while True:
            try:
                await self._finish(result)
                return
            except StaleWriter:
                raise
            except StoreError as exc:
                if self.engine.ending or trio.current_time() >= end:
                    raise
                logger.warning("the outcome of a task of the tool %r could not be stored yet: %s", self.name, exc)
                await trio.sleep(PAUSE)

    async def _finish(self, result: dict[str, Any] | Exception) -> None:
        assert self.task is not None
        if self._why == "lost":
            return  # the task is another process's
        if self._questions is not None and self._why is None:
            await self._suspend(self._questions)
        elif self._why == "cancelled":
            await self.change(**AS_CANCELLED)
        elif self._why is not None:
            if self._reruns:  # it is ready for another process, which has lost nothing
                await self.change(token="", begun=False)
            else:
                await self._fail(unknown_outcome(INTERRUPTED[self._why]))
        elif isinstance(result, Exception):
            error = result if isinstance(result, McpError) else error_for(result, "tools/call")
            await self._fail(error)
        else:
            await self._complete(result)

    @property
    def _reruns(self) -> bool:
        return self.policy.on_loss == "rerun" or (self.task is not None and not self.task.begun)

    async def _complete(self, result: dict[str, Any]) -> None:
        try:
            # It is what the call itself would have returned, and in this era each result has a type.
            data = to_json({"result": {"resultType": "complete", **result}})
        except (PydanticSerializationError, ValueError) as exc:
            logger.error("the result of the tool %r can't be stored: %s", self.name, exc)
            await self._fail(McpError(INTERNAL_ERROR, "the result of the tool can't be turned into JSON"))
            return
        if len(data) > self.engine.options.max_size:
            await self._fail(self._too_large("the result of the tool takes", len(data)))
            return
        await self.change(status="completed", token="", result=data, message=None, cancelling=False)

    async def _fail(self, error: Any) -> None:
        await self.change(status="failed", token="", result=error_bytes(error), message=error.message, cancelling=False)

    def _too_large(self, what: str, size: int) -> McpError:
        return McpError(INTERNAL_ERROR, f"{what} {size} bytes; a task may take {self.engine.options.max_size}")

    async def _suspend(self, questions: dict[str, InputRequest[Any]]) -> None:
        entries, asked = self._asked(questions)
        if len(asked) > self.engine.options.max_size:
            await self._fail(self._too_large("the questions take", len(asked)))
            return
        await self.change(status="input_required", token="", asked=asked, entries=entries, message=None, begun=False)

    def _asked(self, questions: dict[str, InputRequest[Any]]) -> tuple[list[JournalEntry], bytes]:
        rounds = self._rounds
        assert rounds is not None
        revision = self.context.protocol_version
        keyed = rounds.described(questions)
        names = self.journal.wire_keys(questions)
        asked = {names[key]: [key, request.wire(revision), list(keyed[key])] for key, request in questions.items()}
        explicit = rounds.returned or self.journal.explicit
        entries = [state_entry(len(self.journal.used), rounds.state)] if explicit else []
        return entries, to_json(asked)

    def cancel(self, why: str) -> None:
        """End the function: ``"cancelled"``, ``"lost"`` or ``"late"``."""
        if self._why is None:
            self._why = why
            self.scope.cancel(f"the task was {why}" if why != "late" else INTERRUPTED[why])

    def lose(self) -> None:
        """End the function, because the lease is another's."""
        self.cancel("lost")

    def hold(self, until: float) -> None:
        """Let the function run until a time on Trio's clock, at which the lease must have been renewed."""
        self.scope.deadline = until

    # --- the task ------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Create the task, unless there is one, or the run has ended.

        Raises:
            McpError: If there is no room for another task, or the store can't be used.
        """
        async with self._lock:
            if self.task is None and not self._over:
                if len(self.engine.running) >= self.engine.options.max_running:
                    most = self.engine.options.max_running
                    raise McpError(OVERLOADED, f"{most} tasks are running here, which is the limit; try again later")
                await self._add()

    async def _add(self, status: str = "working", questions: dict[str, InputRequest[Any]] | None = None) -> None:
        stores, context, options = self.engine.stores, self.context, self.engine.options
        entries = self.journal.entries()
        asked = b""
        if questions is not None:
            more, asked = self._asked(questions)
            entries += more
        client = context.client
        assert client is not None
        now, before = stores.now(), stores.clock()
        body = StoredCall(
            context.params.get("arguments"),
            client.revision,
            client.client_info,
            client.capabilities,
            tuple(sorted(self.engine.scopes_of(context.params.get("name")))),
        ).to_bytes()
        working = status == "working"
        task = StoredTask(
            key=self.key,
            owner=owner_of(context.principal),
            tool=self.name,
            status=status,
            created=now,
            updated=now,
            expires=now + self.policy.ttl,
            begun=working,
            message=self._said,
            body=body,
            asked=asked,
        )
        if len(body) + len(asked) + self.journal.size > options.max_size:
            raise McpError(INTERNAL_ERROR, f"the call is too large for a task, which may take {options.max_size} bytes")
        with refusing_clearly():
            self.task = await stores.add_task(
                task, entries, lease=options.lease if working else None, limit=options.max_tasks
            )
        self._token = self.task.token
        if working:
            self.engine.holds(self, before)
        self.settled.set()

    async def begin(self) -> None:
        """Store that the function goes on from here to what no run has done before."""
        async with self._lock:
            if self.task is not None and not self.task.begun and not self._over:
                await self._fenced(self.change, begun=True)

    async def change(self, entries: tuple[JournalEntry, ...] | list[JournalEntry] = (), **changes: Any) -> None:
        """Change the task under the lease, whatever others change meanwhile.

        Raises:
            StaleWriter: If the lease is another's, or the task is gone.
        """
        stores = self.engine.stores
        while True:
            assert self.task is not None
            if self.task.cancelling and changes.get("token") == "" and changes.get("status") not in ENDED:
                # No process runs the task any more, so none would see later that the client has cancelled it.
                entries, changes = (), AS_CANCELLED
            task = attrs.evolve(self.task, **{"updated": stores.now(), "version": self.task.version + 1, **changes})
            if await stores.put_task(task, entries, token=self._token):
                self.task = task
                self.engine.changed(task)
                return
            fresh = await stores.task(self.key)
            if fresh is None or fresh.token != self._token or fresh.status in ENDED:
                raise StaleWriter("the task has ended, or is another's")
            self.task = fresh

    async def say(self, message: str) -> None:
        """Change the task's message, at most every `QUIET` seconds."""
        self._said = message = message[:1000]
        # A message that a run repeats has been reported already.
        if self.task is None or self._unread or self._ahead or self._over or self._speaking:
            return
        if (wait := self._saying + QUIET - trio.current_time()) > 0:
            self._speaking = True
            self.engine.host.nursery.start_soon(self._say_after, wait)
        else:
            await self._tell()

    async def _say_after(self, wait: float) -> None:
        """Store the last of the messages that came too soon."""
        await trio.sleep(wait)
        self._speaking = False
        await self._tell()

    async def _tell(self) -> None:
        self._saying = trio.current_time()
        async with self._lock:
            if self._over or self.task is None or self.task.message == self._said:
                return
            try:
                await self.change(message=self._said)
            except StaleWriter:
                self.lose()
            except StoreError as exc:
                logger.warning("the message of a task of the tool %r could not be stored: %s", self.name, exc)

    async def remember(self, key: str, value: Any) -> None:
        """Add a ``once`` value to the journal; it counts once it is stored."""
        entry = once_entry(key, value)
        size = self.journal.size + len(entry[0]) + len(entry[1])
        if size > self.engine.options.max_size:
            raise ValueError(f"the values of once() of a task may take {self.engine.options.max_size} bytes together")
        async with self._lock:
            if self.task is not None:
                await self._fenced(self.engine.stores.note, self.key, self._token, entry)
            self.journal.memory[key] = value
            self.journal.size = size

    async def _fenced(self, write: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        while True:
            try:
                await write(*arguments, **more)
                return
            except StoreError as exc:
                failure = exc
            if isinstance(failure, StaleWriter):
                self.lose()
                await trio.lowlevel.checkpoint_if_cancelled()  # raises, except in a thread or a shielded scope
                raise failure
            if self.scope.cancel_called:
                raise failure
            logger.warning("a task of the tool %r waits for the store: %s", self.name, failure)
            await trio.sleep(PAUSE)  # the end of the lease, which can't be renewed either, ends the wait

    async def allowed(self) -> None:
        """Wait until the lease is certain, before a step: after a pause of the process it may be another's."""
        self._ahead.clear()
        await self.begin()
        if self.task is not None:
            await self.engine.confirmed(self)

    def passed(self, key: str) -> None:
        """Record that the function has come to a step."""
        self._ahead.discard(key)

    def refuse(self, error: McpError) -> McpError:
        """Let the task fail with an error, whatever the function makes of it."""
        self._refusal = error
        return error

    # --- the function --------------------------------------------------------------------------------------------

    async def interact(self, context: TaskContext, bind: Callable[[], Call], *, park: bool) -> Any:
        """Call the tool's function, in place of `run_interactive`."""
        call = bind()
        earlier: RequestState | None = None
        responses: Mapping[str, Any] = {}
        params = context.request.params or {}
        if self.task is None and ("requestState" in params or "inputResponses" in params):
            earlier, responses = earlier_rounds(context)
        if self.task is not None:
            earlier = RequestState(answers=self.journal.answers, memory=self.journal.memory, state=self.journal.state)
        rounds = self._rounds = TaskRounds(context, earlier, responses, self)
        # The journal and the rounds are one: what the function learns while the task is created must be in both.
        self.journal.answers, self.journal.memory = rounds.answers, rounds.memory
        try:
            value = await rounds.serve(call)
        except Exception as exc:
            pages = single(exc)
            if not isinstance(pages, UrlElicitationRequired):
                raise
            value = pages
        if isinstance(value, (InputRequired, UrlElicitationRequired)):
            rounds.returned = True
            return self.ask(rounds, rounds.explicit(value))
        return value

    def ask(self, rounds: TaskRounds, questions: dict[str, InputRequest[Any]]) -> Any:
        """End the run with questions: those of a round of the call, or of the task."""
        if not self.asks_as_task:
            return rounds.asked_in_round(questions)
        self._questions = questions
        return Asked(SUSPENDED)

    def read(self, keys: set[str]) -> bool:
        """Record that the function has got answers; return whether it now goes on to what no run has done before."""
        before = bool(self._unread)
        self._unread -= keys
        return before and not self._unread


class TaskRounds(ReplayedRounds):
    """The rounds of input of a function that is, or may become, a task.

    Attributes:
        returned: Whether the function has returned or raised its questions, instead of asking them.
    """

    def __init__(
        self, context: TaskContext, earlier: RequestState | None, responses: Mapping[str, Any], run: TaskRun
    ) -> None:
        super().__init__(context, earlier, responses)
        self._run_of_task = run
        self.returned = False

    @property
    def memory(self) -> dict[str, Any]:
        """The values of ``once``, by key."""
        return self._memory

    def described(self, questions: Mapping[str, InputRequest[Any]]) -> dict[str, Question]:
        """Return what identifies each question, by key."""
        return self._questions_of(questions)

    def asked(self, requests: Mapping[str, InputRequest[Any]], parked: str | None = None) -> Asked:
        asked: Asked = self._run_of_task.ask(self, dict(requests))
        return asked

    def asked_in_round(self, requests: Mapping[str, InputRequest[Any]]) -> Asked:
        """Make the result that asks the client in a round of the call."""
        return super().asked(requests)

    async def ask(self, requests: tuple[InputRequest[Any], ...]) -> list[Any]:
        answers = await super().ask(requests)
        if self._run_of_task.read({prefix + key for prefix, key in self._used}):
            await self._run_of_task.begin()
        return answers

    async def once(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        value = await super().once(key, function, *arguments)
        self._run_of_task.passed(self._prefix() + key)
        return value

    def _another_question(self, key: str) -> McpError:
        if self._run_of_task.task is None:  # in a round of the call
            return super()._another_question(key)
        logger.error(
            "the tool %r asks another question under the key %r than the one that was answered: it must ask the same "
            "questions in the same order each time it runs, or give them keys",
            self._run_of_task.name,
            key,
        )
        return self._run_of_task.refuse(
            McpError(INTERNAL_ERROR, f"the tool does not ask the question {key!r} again that was answered")
        )

    async def _remember(self, key: str, value: Any) -> None:
        await self._run_of_task.remember(key, value)

    async def _before_step(self) -> None:
        await self._run_of_task.allowed()


INTERRUPTED = {
    "ended": "the server ended while the tool ran",
    "late": "the server lost touch with its store while the tool ran",
}


@contextlib.contextmanager
def refusing_clearly() -> Iterator[None]:
    """Turn the errors of a store into responses that say what to do; their details are only logged.

    Raises:
        McpError: In place of a `StoreError`.
    """
    try:
        yield
    except StoreFull:
        raise McpError(OVERLOADED, "the server holds as many tasks as it may; try again later") from None
    except StoreBusy as exc:
        logger.warning("the store of the tasks is busy: %s", exc)
        raise McpError(OVERLOADED, "the server's store of tasks is busy; try again later") from None
    except StoreError as exc:
        logger.error("the store of the tasks can't be used: %s", exc)
        raise McpError(INTERNAL_ERROR, "the server's store of tasks can't be used; try again later") from None


def unknown_outcome(why: str) -> McpError:
    """Return the error of a task whose run was lost."""
    return McpError(INTERNAL_ERROR, f"{why}: the outcome is unknown")
