"""A healthy client with the tasks extension, over lines and over HTTP, and clients that break a rule for it."""

from __future__ import annotations

from typing import Any, ClassVar

import trio

from tests.kit.mutants.client import Client, HttpClient, encoded
from tests.kit.mutants.clients import breaks
from tests.kit.mutants.extension_tasks import ENDED, EXTENSION
from tests.kit.mutants.server import PREFIX, Message

WRONG = {"content": {"name": 7}}


class TaskClient(Client):
    """A healthy client over lines, which follows the tasks that its calls become."""

    def meta(self) -> Message:
        found = super().meta()
        declared = found[f"{PREFIX}clientCapabilities"] | {"extensions": {EXTENSION: {}}}
        return found | {f"{PREFIX}clientCapabilities": declared}

    async def call(self, tool: Message) -> None:
        self.counted += 1
        found = await self.ask("tools/call", self.arguments(tool), token=self.token(), tool=tool)
        result = found.get("result", {})
        if result.get("resultType") == "task":
            self.tasks += 1
            await (self.give_up(result, found["id"]) if self.tasks % 3 == 2 else self.follow(result))

    tasks = 0

    async def follow(self, state: Message) -> None:
        """Poll a task, and answer it, until it ends."""
        name = {"taskId": state["taskId"]}
        done: set[str] = set()
        for _ in range(20):
            await trio.sleep(self.interval(state))
            state = (await self.ask("tasks/get", name)).get("result", {})
            if not state or state["status"] in ENDED:
                return
            asked = state.get("inputRequests", {})
            given = {key: self.answer(question) for key, question in asked.items() if key not in done}
            if given:
                done |= given.keys()
                await self.update(name, given)

    def interval(self, state: Message) -> float:
        return float(state["pollIntervalMs"]) / 1000

    async def update(self, name: Message, given: Message) -> None:
        await self.ask("tasks/update", {**name, "inputResponses": given})

    async def give_up(self, state: Message, request_id: Any) -> None:
        """Cancel a task; the request that created it had this id."""
        await self.ask("tasks/cancel", {"taskId": state["taskId"]})


class HttpTaskClient(TaskClient, HttpClient):
    """The same over HTTP."""

    over: ClassVar[str] = "http"

    def headers(self, message: Message, tool: Any) -> dict[str, str]:
        found = super().headers(message, tool)
        task_id = message.get("params", {}).get("taskId")
        return found | ({"Mcp-Name": self.task_name(task_id)} if task_id is not None else {})

    def task_name(self, task_id: str) -> str:
        return encoded(task_id)


@breaks("client-ext-task-elsewhere-refused")
class FollowsPrompts(TaskClient):
    async def use(self, kind: str, item: Message) -> None:
        if kind != "prompts":
            await super().use(kind, item)
            return
        arguments = {each["name"]: "x" for each in item.get("arguments", ())}
        result = (await self.ask("prompts/get", {"name": item["name"], "arguments": arguments})).get("result", {})
        if result.get("resultType") == "task":
            await self.follow(result)


@breaks("client-ext-task-poll-interval")
class PollsWithoutPause(TaskClient):
    def interval(self, state: Message) -> float:
        return 0.0


@breaks("client-ext-task-answers-once")
class UpdatesTwice(TaskClient):
    async def update(self, name: Message, given: Message) -> None:
        await super().update(name, given)
        await super().update(name, given)


@breaks("client-ext-task-answers-known")
class AnswersUnderAnotherKey(TaskClient):
    async def update(self, name: Message, given: Message) -> None:
        await super().update(name, {key.upper(): each for key, each in given.items()})


@breaks("client-ext-task-cancelled-by-method")
class CancelsTasksByNotification(TaskClient):
    async def give_up(self, state: Message, request_id: Any) -> None:
        await self.cancel(request_id)


@breaks("client-ext-task-name-header")
class SendsIdsOfTasksRaw(HttpTaskClient):
    def task_name(self, task_id: str) -> str:
        return task_id.encode("ascii", "ignore").decode()


@breaks("elicitation-answer-conforms")
class FillsFormsOfTasksWithAnything(TaskClient):
    async def update(self, name: Message, given: Message) -> None:
        await super().update(name, {key: each | WRONG if "action" in each else each for key, each in given.items()})
