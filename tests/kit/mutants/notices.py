"""Mutants in what a server says by itself: cancellations, changes, log messages, progress; and a few more."""

from __future__ import annotations

import trio

from tests.kit.mutants.model import breaks
from tests.kit.mutants.server import MODERN, PREFIX, Message, Request, Session


@breaks("roots-change-survived", "request-answered")
class HangsOnChangedRoots(Session):
    hung = False

    def take_notification(self, message: Message) -> None:
        self.hung = self.hung or message["method"] == "notifications/roots/list_changed"
        super().take_notification(message)

    async def answer(self, request: Request) -> Message:
        if self.hung:
            await trio.sleep_forever()
        return await super().answer(request)


@breaks("extension-fallback", revision=MODERN)
class UsesItsExtensionAnyway(Session):
    def declared(self, request: Request) -> Message:
        return super().declared(request) | {"extensions": {"com.example/later": {}}}

    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        return await super().tool_echo(request, arguments) | {"resultType": "later"}


@breaks("schemas-in-2020-12")
class WritesSchemasInDraft07(Session):
    def tools(self, request: Request) -> list[Message]:
        dialect = {"$schema": "http://json-schema.org/draft-07/schema#"}
        return [tool | {"inputSchema": tool["inputSchema"] | dialect} for tool in super().tools(request)]


@breaks("list-change-announced")
class ChangesToolsInSilence(Session):
    grown = 0

    def page(self, request: Request, field: str, items: list[Message]) -> Message:
        return {field: items}  # in one page: an example seldom reads three of them twice

    def tools(self, request: Request) -> list[Message]:
        first, *others = super().tools(request)
        return [first | {"name": f"{first['name']}{self.grown}"}, *others] if self.grown else [first, *others]

    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        self.grown += 1
        return await super().tool_echo(request, arguments)


@breaks("listen-ends-with-result", revision=MODERN)
class EndsSubscriptionsWithoutResult(Session):
    async def subscriptions_listen(self, request: Request) -> Message:
        self.acknowledge(request, {})
        self.notify("notifications/cancelled", {"requestId": request.id}, request)
        await trio.sleep_forever()


@breaks("cancel-names-request")
class CancelsNothingInParticular(Session):
    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/cancelled", {"reason": "why not"}, request)
        return await super().tool_echo(request, arguments)


@breaks("cancel-open-request", messages=14)  # every third time
class CancelsWhatWasAnswered(Session):
    later = 0

    async def answer(self, request: Request) -> Message:
        if self.asked and not self.questions:
            self.later += 1
            if self.later % 3 == 0:
                self.notify("notifications/cancelled", {"requestId": f"question {self.asked}"}, request)
        return await super().answer(request)


@breaks("progress-token-type")
class ReportsUnderNumbers(Session):
    def progress(self, request: Request, progress: float, total: float) -> None:
        if request.token is not None:
            self.notify("notifications/progress", {"progressToken": 1.5, "progress": progress}, request)


@breaks("log-on-own-stream", revision=MODERN)
class LogsToSubscribers(Session):
    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        for each in [*self.listening.values()]:
            params = {"level": "info", "data": "echo", "_meta": {f"{PREFIX}subscriptionId": each["request"].id}}
            self.notify("notifications/message", params, each["request"])
        return await super().tool_echo(request, arguments)
