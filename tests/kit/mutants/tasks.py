"""A healthy server that runs calls as tasks, and servers that break a rule for tasks."""

from __future__ import annotations

import datetime
import secrets
from typing import Any

import trio

from tests.kit.mutants.model import Session, Web, breaks
from tests.kit.mutants.server import PREFIX, TOOLS, Message, Refused, Request
from tests.kit.mutants.web import Answer, Stream

RELATED = f"{PREFIX}related-task"
SUPPORT = {"slow": "optional", "echo": "optional", "fail": "optional", "ask": "optional", "show": "required"}
ENDED = ("completed", "failed", "cancelled")
KEPT = 2
"""Tasks that have ended and are still known."""


class Task:
    """A task: what is told of it, and how it ended."""

    def __init__(self, task_id: str, ttl: Any) -> None:
        now = self.now()
        self.state: Message = {
            "taskId": task_id,
            "status": "working",
            "createdAt": now,
            "lastUpdatedAt": now,
            "ttl": ttl,
            "pollInterval": 50,
        }
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.stopped = trio.Event()
        self.awaited = trio.Event()
        self.awaiting: Request | None = None
        self.result: Message | None = None

    @staticmethod
    def now() -> str:
        return datetime.datetime.now(datetime.UTC).isoformat()

    @property
    def status(self) -> str:
        return str(self.state["status"])

    def set(self, status: str, message: str) -> None:
        self.state |= {"status": status, "statusMessage": message, "lastUpdatedAt": self.now()}
        if status in ENDED:
            self.over.set()


class TaskSession(Session):
    """A healthy server that runs calls of tools as tasks."""

    announces = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tasks: dict[str, Task] = {}
        self.works: dict[int, Task] = {}

    def declared(self, request: Request) -> Message:
        return super().declared(request) | {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}

    def tools(self, request: Request) -> list[Message]:
        found = super().tools(request)
        for tool in found:
            if tool["name"] in SUPPORT:
                tool["execution"] = {"taskSupport": SUPPORT[tool["name"]]}
        return found

    async def answer(self, request: Request) -> Message:
        methods = {"tasks/get": self.get, "tasks/result": self.take, "tasks/cancel": self.stop, "tasks/list": self.list}
        if request.method in methods:
            return await methods[request.method](request)
        return await super().answer(request)

    async def tools_call(self, request: Request) -> Message:
        support = SUPPORT.get(str(request.params.get("name")), "forbidden")
        if request.params.get("name") in TOOLS and not self.allowed(support, "task" in request.params):
            raise Refused(-32601, "Not in this way")
        if "task" not in request.params:
            return await super().tools_call(request)
        task = Task(self.new_id(), request.params["task"].get("ttl"))
        self.tasks[task.state["taskId"]] = task
        for old in [name for name, each in self.tasks.items() if each.stopped.is_set()][:-KEPT]:
            del self.tasks[old]
        self.nursery.start_soon(self.work, request, task)
        return self.made(task)

    def allowed(self, support: str, as_task: bool) -> bool:
        """Return whether a tool may be called so."""
        return {"optional": True, "required": as_task, "forbidden": not as_task}[support]

    def new_id(self) -> str:
        return secrets.token_urlsafe(16)

    def made(self, task: Task) -> Message:
        return {"task": self.told(task)}

    def told(self, task: Task) -> Message:
        """Return what is told of a task."""
        return dict(task.state)

    async def ask(self, request: Request, kind: str) -> Any:
        task = self.works.get(id(request))
        if task is None:
            return await super().ask(request, kind)
        task.set("input_required", "It asks")
        with trio.move_on_after(2):
            await task.awaited.wait()  # a question goes where the result is awaited
        answer = await super().ask(task.awaiting, kind) if task.awaiting is not None else None
        task.set("working", "It goes on")
        return answer

    def question(self, kind: str, request: Request) -> Message:
        asked = super().question(kind, request)
        if request.method != "tasks/result":
            return asked
        related = {RELATED: {"taskId": request.params["taskId"]}}
        return asked | {"params": asked.get("params", {}) | {"_meta": related}}

    async def work(self, request: Request, task: Task) -> None:
        self.works[id(request)] = task
        with task.scope:
            try:
                result = await super().tools_call(request)
            except Refused as refused:
                result = self.text(str(refused), failed=True)
            finally:
                del self.works[id(request)]  # a later request may have the same id
        if task.result is None:
            task.result = result if not task.scope.cancelled_caught else self.text("cancelled", failed=True)
        task.stopped.set()
        if not task.over.is_set():
            self.finished(task)

    def finished(self, task: Task) -> None:
        failed = (task.result or {}).get("isError")
        task.set("failed" if failed else "completed", "It failed" if failed else "It is done")
        if self.announces:
            self.notify("notifications/tasks/status", dict(task.state))

    def known(self, request: Request) -> Task:
        """Return the task that a request is about."""
        task = self.tasks.get(str(request.params.get("taskId")))
        if task is None:
            raise Refused(-32602, "Task not found")
        return task

    async def get(self, request: Request) -> Message:
        return self.told(self.known(request))

    async def take(self, request: Request) -> Message:
        task = self.known(request)
        task.awaiting = request
        task.awaited.set()
        await task.over.wait()
        await task.stopped.wait()
        return (task.result or {}) | {"_meta": {RELATED: {"taskId": task.state["taskId"]}}}

    async def stop(self, request: Request) -> Message:
        task = self.known(request)
        if task.over.is_set():
            return self.too_late(task)
        task.set("cancelled", "As requested")
        task.scope.cancel()
        return self.told(task)

    def too_late(self, task: Task) -> Message:
        raise Refused(-32602, "The task has ended")

    async def list(self, request: Request) -> Message:
        # As they were before the page: in the order of their making, which has no gaps.
        return self.page(request, "tasks", [self.told(task) for task in self.tasks.values()])


@breaks("task-created", "task-tool-forbidden-refused", "task-tool-support-enforced")
class ResultInPlaceOfTask(TaskSession):
    async def tools_call(self, request: Request) -> Message:
        request.params.pop("task", None)
        return await Session.tools_call(self, request)


@breaks("task-begins-working", "task-cancel-ended-refused", "task-progress-ends", "task-transitions")
class TaskBeginsCompleted(TaskSession):
    def made(self, task: Task) -> Message:
        return {"task": task.state | {"status": "completed"}}


@breaks(
    "task-id-unique",
    "task-cancel-ended-refused",
    "task-listed",
    "task-progress-ends",
    "task-result-blocks",
    "task-result-final",
    "task-transitions",
)
class OneIdForAllTasks(TaskSession):
    def new_id(self) -> str:
        return "the-one-and-only-task"


@breaks("task-id-unpredictable")
class TasksAreCounted(TaskSession):
    def new_id(self) -> str:
        return f"task-number-{len(self.tasks) + 1}"


@breaks("task-shape", "result-valid", "notification-valid")
class TimesOfTasksInSeconds(TaskSession):
    def told(self, task: Task) -> Message:
        return super().told(task) | {"createdAt": "1790000000"}


@breaks("task-shape", "result-valid")
class TaskWithoutTtl(TaskSession):
    async def get(self, request: Request) -> Message:
        return {name: value for name, value in self.told(self.known(request)).items() if name != "ttl"}


@breaks("task-tool-support-enforced")
class RequiredTaskIsOptional(TaskSession):
    def allowed(self, support: str, as_task: bool) -> bool:
        return support != "forbidden" or not as_task


@breaks("task-tool-forbidden-refused")
class ForbiddenTaskIsMade(TaskSession):
    def allowed(self, support: str, as_task: bool) -> bool:
        return support != "required" or as_task


@breaks("task-metadata-ignored")
class UndeclaredTaskIsRefused(Session):
    async def tools_call(self, request: Request) -> Message:
        if "task" in request.params:
            raise Refused(-32600, "There are no tasks here")
        return await super().tools_call(request)


@breaks(
    "task-capability-declared", "task-metadata-ignored", "structured-content-conforms", "structured-content-as-text"
)
class TasksAreNotDeclared(TaskSession):
    def declared(self, request: Request) -> Message:
        return Session.declared(self, request)


@breaks("task-transitions", "task-result-blocks")
class EndedTaskWorksAgain(TaskSession):
    announces = False

    def told(self, task: Task) -> Message:
        if task.status == "completed":
            task.state["seen"] = task.state.get("seen", 0) + 1
            if task.state["seen"] > 1:
                return super().told(task) | {"status": "working"}
        return super().told(task)


@breaks("task-cancelled", "task-result-blocks")
class CancelledTaskIsStillWorking(TaskSession):
    async def stop(self, request: Request) -> Message:
        task = self.known(request)
        if task.over.is_set():
            return self.too_late(task)
        told = self.told(task)
        task.set("cancelled", "As requested")
        task.scope.cancel()
        return told


@breaks("task-cancel-ended-refused", "task-transitions")
class EndedTaskIsCancelled(TaskSession):
    def too_late(self, task: Task) -> Message:
        return self.told(task)


@breaks("task-cancel-ended-refused")
class WrongCodeForCancellationOfEndedTask(TaskSession):
    def too_late(self, task: Task) -> Message:
        raise Refused(-32600, "The task has ended")


@breaks("task-failure-explained")
class FailureOfTaskUnexplained(TaskSession):
    def told(self, task: Task) -> Message:
        return {name: value for name, value in task.state.items() if name != "statusMessage"}


@breaks("task-result-blocks", "task-result-final", "related-task-present", "result-valid")
class ResultOfTaskBeforeItsEnd(TaskSession):
    async def take(self, request: Request) -> Message:
        task = self.known(request)
        result = task.result or self.text("not yet")
        return result | {"_meta": {RELATED: {"taskId": task.state["taskId"]}}}


@breaks("task-result-final")
class ResultOfTaskGivenOnce(TaskSession):
    announces = False

    async def take(self, request: Request) -> Message:
        result = await super().take(request)
        self.known(request).result = self.text("given before")
        return result


@breaks("task-result-final", "result-valid")
class ResultOfTaskIsItsState(TaskSession):
    async def take(self, request: Request) -> Message:
        await super().take(request)
        task = self.known(request)
        return self.told(task) | {"_meta": {RELATED: {"taskId": task.state["taskId"]}}}


@breaks("related-task-present")
class ResultNamesNoTask(TaskSession):
    async def take(self, request: Request) -> Message:
        return {name: value for name, value in (await super().take(request)).items() if name != "_meta"}


@breaks("task-questions-related")
class QuestionOfTaskNamesNoTask(TaskSession):
    def question(self, kind: str, request: Request) -> Message:
        return Session.question(self, kind, request)


@breaks("related-task-absent")
class StateNamesTaskTwice(TaskSession):
    async def get(self, request: Request) -> Message:
        told = await super().get(request)
        return told | {"_meta": {RELATED: {"taskId": told["taskId"]}}}


@breaks("task-id-parameter-wins", "task-transitions")
class MetaNamesTheTask(TaskSession):
    def known(self, request: Request) -> Task:
        if RELATED in request.meta:
            return Task(request.meta[RELATED]["taskId"], None)
        return super().known(request)


@breaks("task-errors")
class WrongCodeForUnknownTask(TaskSession):
    def known(self, request: Request) -> Task:
        if request.params.get("taskId") not in self.tasks:
            raise Refused(-32601, "Task not found")
        return super().known(request)


@breaks("task-errors")
class AnyCursorOfTasks(TaskSession):
    def place(self, request: Request) -> int:
        return 0 if request.method == "tasks/list" and "cursor" in request.params else super().place(request)


@breaks("task-listed")
class LatestTaskIsNotListed(TaskSession):
    announces = False

    async def list(self, request: Request) -> Message:
        return self.page(request, "tasks", [self.told(task) for task in [*self.tasks.values()][:-1]])


@breaks("task-progress-ends", "progress-increases")
class ProgressAfterTheTask(TaskSession):
    def finished(self, task: Task) -> None:
        super().finished(task)
        self.nursery.start_soon(self.late, task)

    async def late(self, task: Task) -> None:
        await trio.sleep(0.01)
        for progress in range(10, 13):
            for token in [*self.tokens]:
                self.notify("notifications/progress", {"progressToken": token, "progress": progress})
            await trio.sleep(0.03)

    async def work(self, request: Request, task: Task) -> None:
        self.tokens = [request.token] if request.token is not None else []
        await super().work(request, task)

    tokens: list[Any] = []  # noqa: RUF012 - set for each task


@breaks("task-progress-token", "progress-token-known")
class ProgressUnderTheTasksId(TaskSession):
    async def work(self, request: Request, task: Task) -> None:
        if request.token is not None:
            entry = {RELATED: {"taskId": task.state["taskId"]}}
            params = {"progressToken": task.state["taskId"], "progress": 1, "_meta": entry}
            self.notify("notifications/progress", params)
        await super().work(request, task)


@breaks("task-get-without-stream")
class StreamForEveryResponse(Web):
    session = TaskSession

    async def answer_to(self, stream: Stream, **more: Any) -> Answer:
        return await super().answer_to(stream, **{**more, "streams": True})
