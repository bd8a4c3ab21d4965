"""A healthy server with the tasks extension, and servers that break a rule for it.

Nothing runs for a task: it is a date, and what is told of it depends on the time alone.
"""

from __future__ import annotations

import datetime
import secrets

import jsonschema_rs
import trio

from tests.kit.mutants.model import MODERN, Session, breaks
from tests.kit.mutants.server import PREFIX, QUESTIONS, TOOLS, Message, Refused, Request

EXTENSION = f"{PREFIX}tasks"
SECONDS = {"slow": 0.05, "fail": 0.01, "show": 0.01, "ask": 0.01}
"""How long a task of a tool takes; for each step, if it has steps. The other tools never become tasks."""
REQUIRED = ("show",)
ENDED = ("completed", "failed", "cancelled")


class Job:
    """A task.

    Args:
        task_id: Its id.
        seconds: How long it takes.
        outcome: Its ``result`` or ``error``.
        asks: What it asks, by key; it does not end before all of it is answered.
    """

    def __init__(self, task_id: str, seconds: float, outcome: Message, asks: Message) -> None:
        self.id = task_id
        self.made = datetime.datetime.now(datetime.UTC).isoformat()
        self.began = trio.current_time()
        self.ends = self.began + seconds
        self.outcome = outcome
        self.asks = asks
        self.is_cancelled = False
        self.seen = 0

    @property
    def status(self) -> str:
        if self.is_cancelled:
            return "cancelled"
        if self.asks:
            return "input_required"
        if trio.current_time() < self.ends:
            return "working"
        return "completed" if "result" in self.outcome else "failed"


class TaskingSession(Session):
    """A healthy server whose calls may become tasks."""

    def declared(self, request: Request) -> Message:
        found = super().declared(request)
        return found | {"extensions": {EXTENSION: {}}} if request.modern else found

    def declares(self, request: Request) -> bool:
        """Return whether a request declares the extension."""
        declared = request.meta.get(f"{PREFIX}clientCapabilities", {})
        return request.modern and EXTENSION in declared.get("extensions", {})

    def missing(self) -> Refused:
        return Refused(-32021, "It needs tasks", {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})

    async def answer(self, request: Request) -> Message:
        methods = {"tasks/get": self.get, "tasks/update": self.update, "tasks/cancel": self.stop}
        if request.modern and request.method in methods:
            if not self.declares(request):
                return self.undeclared(request)
            return methods[request.method](request)
        return await super().answer(request)

    def undeclared(self, request: Request) -> Message:
        """Return the response to a request about a task of a client without the extension."""
        raise self.missing()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def tools_call(self, request: Request) -> Message:
        name, arguments = request.params.get("name"), request.params.get("arguments", {})
        usable = isinstance(name, str) and name in SECONDS and request.modern
        if not usable or not jsonschema_rs.is_valid(TOOLS[str(name)]["inputSchema"], arguments):
            return await super().tools_call(request)
        if self.becomes_task(request):
            return await self.create(request, str(name), arguments)
        if name in REQUIRED:
            raise self.refusal()
        return await super().tools_call(request)

    def becomes_task(self, request: Request) -> bool:
        return self.declares(request)

    def refusal(self) -> Refused:
        """Return the refusal of a call that must be a task."""
        return self.missing()

    async def tool_slow(self, request: Request, arguments: Message) -> Message:
        if arguments["steps"] > 2:
            raise Refused(-32603, "Too slow")
        return await super().tool_slow(request, arguments)

    async def create(self, request: Request, name: str, arguments: Message) -> Message:
        asks: Message = self.wishes() if name == "ask" else {}
        try:
            if name == "slow" and arguments["steps"] < 3:
                result = self.text("done")
            else:
                result = self.text("got it") if asks else await getattr(self, f"tool_{name}")(request, arguments)
            outcome: Message = {"result": result}
        except Refused as refused:
            outcome = {"error": refused.error}
        job = Job(self.new_id(), SECONDS[name] * arguments.get("steps", 1), outcome, asks)
        self.twin.tasks[job.id] = job
        return self.created(job)

    def wishes(self) -> Message:
        """Return what a task asks."""
        return {"who": QUESTIONS["elicitation"]}

    def new_id(self) -> str:
        return secrets.token_urlsafe(16)

    def created(self, job: Job) -> Message:
        return {"resultType": "task"} | self.head(job)

    def head(self, job: Job) -> Message:
        return {
            "taskId": job.id,
            "status": job.status,
            "createdAt": job.made,
            "lastUpdatedAt": job.made,
            "ttlMs": 60000,
            "pollIntervalMs": 20,
        }

    def told(self, job: Job) -> Message:
        """Return what is told of a task."""
        found = self.head(job)
        match found["status"]:
            case "input_required":
                return found | {"inputRequests": dict(job.asks)}
            case "completed":
                return found | {"result": {"resultType": "complete"} | job.outcome["result"]}
            case "failed":
                return found | {"statusMessage": "It failed"} | job.outcome
        return found

    # --- the methods --------------------------------------------------------------------------------------------------

    def known(self, request: Request) -> Job:
        """Return the task that a request is about."""
        found = self.twin.tasks.get(str(request.params.get("taskId")))
        if not isinstance(found, Job):
            raise Refused(-32602, "Task not found")
        return found

    def get(self, request: Request) -> Message:
        return self.told(self.known(request))

    def update(self, request: Request) -> Message:
        job = self.known(request)
        for key in request.params.get("inputResponses", {}):
            self.answered(job, key)
        return {}

    def answered(self, job: Job, key: str) -> None:
        """Take the answer to what a task asked."""
        if job.asks.pop(key, None) is not None:
            job.ends = trio.current_time() + 0.01

    def stop(self, request: Request) -> Message:
        job = self.known(request)
        if job.status not in ENDED:
            job.is_cancelled = True
        return {}

    # --- listening ----------------------------------------------------------------------------------------------------

    async def subscriptions_listen(self, request: Request) -> Message:
        wanted = request.params.get("notifications")
        ids = wanted.get("taskIds") if isinstance(wanted, dict) else None
        if not isinstance(ids, list) or not ids:
            return await super().subscriptions_listen(request)
        if not self.declares(request):
            self.listens_undeclared()
        jobs = [job for job in map(self.twin.tasks.get, map(str, ids)) if isinstance(job, Job)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch, request, jobs)
            return await super().subscriptions_listen(request)

    def listens_undeclared(self) -> None:
        raise self.missing()

    def honoured(self, wanted: Message) -> Message:
        ids = wanted.get("taskIds")
        known = [task_id for task_id in ids if task_id in self.twin.tasks] if isinstance(ids, list) else []
        return super().honoured(wanted) | ({"taskIds": known} if known else {})

    async def watch(self, request: Request, jobs: list[Job]) -> None:
        """Tell a listener what becomes of tasks."""
        last: dict[str, str] = {}
        while any(last.get(job.id) not in ENDED for job in jobs):
            for job in jobs:
                if last.get(job.id) != job.status:
                    last[job.id] = job.status
                    self.announce(request, job)
            await trio.sleep(0.02)

    def announce(self, request: Request, job: Job) -> None:
        self.tell_listener(request, "notifications/tasks", self.told(job))


# --- creation ---------------------------------------------------------------------------------------------------------


@breaks("ext-task-consent", "extension-fallback", revision=MODERN)
class EveryClientGetsTasks(TaskingSession):
    def becomes_task(self, request: Request) -> bool:
        return True


@breaks("ext-task-required-refused", revision=MODERN, messages=8)
class NeedsTasksWithoutSayingSo(TaskingSession):
    def refusal(self) -> Refused:
        return Refused(-32601, "Only as a task")


@breaks("ext-task-type-set", "result-valid", revision=MODERN)
class CreatedTaskIsComplete(TaskingSession):
    def created(self, job: Job) -> Message:
        return super().created(job) | {"resultType": "complete"}


@breaks("ext-task-type-reserved", revision=MODERN)
class PromptIsOfTypeTask(TaskingSession):
    async def prompts_get(self, request: Request) -> Message:
        return await super().prompts_get(request) | {"resultType": "task"}


@breaks("ext-task-durable", revision=MODERN)
class NewTaskIsFoundLater(TaskingSession):
    def known(self, request: Request) -> Job:
        job = super().known(request)
        if trio.current_time() < job.began + 0.005:
            raise Refused(-32602, "Task not found")
        return job


@breaks("ext-task-id-unguessable", revision=MODERN)
class CountsTasks(TaskingSession):
    def new_id(self) -> str:
        return f"task-number-{len(self.twin.tasks) + 1}"


@breaks("ext-task-id-unguessable", revision=MODERN)
class ShortIdsOfTasks(TaskingSession):
    def new_id(self) -> str:
        return secrets.token_hex(3)


# --- states -----------------------------------------------------------------------------------------------------------


@breaks("ext-task-shape", revision=MODERN)
class TaskMadeInSeconds(TaskingSession):
    def head(self, job: Job) -> Message:
        return super().head(job) | {"createdAt": "1790000000"}


@breaks("ext-task-shape", revision=MODERN)
class TaskWithoutTtlMs(TaskingSession):
    def told(self, job: Job) -> Message:
        return {name: value for name, value in super().told(job).items() if name != "ttlMs"}


@breaks("ext-task-details", revision=MODERN)
class CompletedWithoutResult(TaskingSession):
    def told(self, job: Job) -> Message:
        return {name: value for name, value in super().told(job).items() if name != "result"}


@breaks("ext-task-details", revision=MODERN, messages=14)
class FailedWithoutCode(TaskingSession):
    def told(self, job: Job) -> Message:
        found = super().told(job)
        return found | ({"error": {"message": "It failed"}} if "error" in found else {})


@breaks("ext-task-details", "input-requests-known", revision=MODERN)
class NeedsUnknownInput(TaskingSession):
    def wishes(self) -> Message:
        return {"who": {"method": "person/ask"}}


@breaks("ext-task-failed-by-error", revision=MODERN, messages=8)
class ToolErrorFailsTask(TaskingSession):
    async def create(self, request: Request, name: str, arguments: Message) -> Message:
        found = await super().create(request, name, arguments)
        if name == "fail":
            self.twin.tasks[found["taskId"]].outcome = {"error": {"code": -32603, "message": "It failed"}}
        return found


@breaks("ext-task-result-valid", revision=MODERN)
class ResultInsideResult(TaskingSession):
    def told(self, job: Job) -> Message:
        found = super().told(job)
        return found | ({"result": {"value": found["result"]}} if "result" in found else {})


@breaks("ext-task-failure-explained", revision=MODERN, messages=14)
class FailsWithoutMessage(TaskingSession):
    def told(self, job: Job) -> Message:
        return {name: value for name, value in super().told(job).items() if name != "statusMessage"}


@breaks("ext-task-final", revision=MODERN, messages=10)
class EndedJobWorksAgain(TaskingSession):
    def get(self, request: Request) -> Message:
        job = self.known(request)
        job.seen += job.status in ENDED
        return super().get(request) if job.seen < 2 else self.head(job) | {"status": "working"}


@breaks("ext-task-final", revision=MODERN, messages=10)
class EndedJobIsCancelled(TaskingSession):
    def stop(self, request: Request) -> Message:
        self.known(request).is_cancelled = True
        return {}


@breaks("ext-task-id-kept", revision=MODERN)
class EachPollHasAnId(TaskingSession):
    def get(self, request: Request) -> Message:
        return super().get(request) | {"taskId": self.new_id()}


# --- input ------------------------------------------------------------------------------------------------------------


@breaks("ext-task-input-keys-unique", revision=MODERN, messages=10)
class AsksAgainUnderOneKey(TaskingSession):
    def answered(self, job: Job, key: str) -> None:
        job.seen += key in job.asks
        if job.seen < 3:
            job.asks = {
                "who": QUESTIONS["elicitation"]
                | {"params": {**QUESTIONS["elicitation"]["params"], "message": f"{job.seen}"}}
            }
        else:
            super().answered(job, key)


@breaks("ext-task-acknowledged", revision=MODERN)
class UpdateReturnsTask(TaskingSession):
    def update(self, request: Request) -> Message:
        super().update(request)
        return self.told(self.known(request))


@breaks("ext-task-acknowledged", revision=MODERN)
class CancellationReturnsTask(TaskingSession):
    def stop(self, request: Request) -> Message:
        super().stop(request)
        return self.told(self.known(request))


@breaks("ext-task-other-keys-ignored", revision=MODERN)
class RefusesOtherKeys(TaskingSession):
    def answered(self, job: Job, key: str) -> None:
        if key not in job.asks:
            raise Refused(-32602, "That was not asked")
        super().answered(job, key)


# --- methods ----------------------------------------------------------------------------------------------------------


@breaks("ext-task-responses-complete", "ext-task-type-reserved", revision=MODERN)
class PollIsOfTypeTask(TaskingSession):
    def get(self, request: Request) -> Message:
        return super().get(request) | {"resultType": "task"}


@breaks("ext-task-unknown-get-refused", "ext-task-unknown-refused", revision=MODERN)
class WrongCodeForUnknownJob(TaskingSession):
    def known(self, request: Request) -> Job:
        try:
            return super().known(request)
        except Refused:
            raise Refused(-32603, "Task not found") from None


@breaks("ext-task-unknown-refused", revision=MODERN)
class CancelsTheUnknownJob(TaskingSession):
    def stop(self, request: Request) -> Message:
        return super().stop(request) if request.params.get("taskId") in self.twin.tasks else {}


@breaks("ext-task-needs-capability", revision=MODERN)
class EveryClientPolls(TaskingSession):
    def undeclared(self, request: Request) -> Message:
        return self.get(request)


@breaks("ext-task-listen-needs-capability", revision=MODERN)
class EveryClientListensToTasks(TaskingSession):
    def listens_undeclared(self) -> None:
        return None


@breaks(
    "ext-task-quiet", "progress-token-known", "log-only-on-request", "log-on-own-stream", revision=MODERN, messages=8
)
class ProgressForListeners(TaskingSession):
    def announce(self, request: Request, job: Job) -> None:
        self.tell_listener(request, "notifications/progress", {"progressToken": job.id, "progress": 1})
        super().announce(request, job)


@breaks("listen-only-requested", "ext-task-id-kept", revision=MODERN, messages=8)
class AnnouncesEveryTask(TaskingSession):
    def announce(self, request: Request, job: Job) -> None:
        self.tell_listener(request, "notifications/tasks", self.told(job) | {"taskId": self.new_id()})
