"""Servers that break no sentence of the specification, and that every user calls broken."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import trio

from tests.kit.mutants.handshake import Dies
from tests.kit.mutants.model import MODERN, Session, breaks
from tests.kit.mutants.server import Message, Refused, Request


@breaks("malformed-input-survived")
class DiesOfNoise(Dies):
    def parse(self, text: bytes) -> Any:
        try:
            return super().parse(text)
        except Refused:
            self.nursery.cancel_scope.cancel()
            raise


@breaks("malformed-input-survived", revision=MODERN)
class DiesOfStrangeJson(Dies):
    def validate(self, message: Any) -> None:
        try:
            super().validate(message)
        except Refused:
            self.nursery.cancel_scope.cancel()
            raise


class WorksAlone(Session):
    """A server that does one thing after the other."""

    async def run(self, request: Request) -> None:
        if not hasattr(self, "busy"):
            self.busy = trio.Lock()
        async with self.busy:
            await super().run(request)

    def log(self, request: Request, level: str, data: Any) -> None:
        pass


@breaks("answers-while-working")
class AnswersNoPingWhileItWorks(WorksAlone):
    pass


@breaks("answers-while-working", revision=MODERN)
class HearsNothingWhileItWorks(WorksAlone):
    def cancel(self, request_id: Any) -> None:
        pass


class Promises(Session):
    """A server that declares more than it knows."""

    unknown: ClassVar[str]

    async def answer(self, request: Request) -> Message:
        if request.method == self.unknown:
            raise Refused(-32601, f"Unknown method {request.method}")
        return await super().answer(request)


@breaks("declared-methods-known")
class PromisesLevels(Promises):
    unknown = "logging/setLevel"


@breaks("declared-methods-known", revision=MODERN)
class PromisesCompletions(Promises):
    unknown = "completion/complete"


@breaks("declared-methods-known")
class PromisesSubscriptions(Promises):
    unknown = "resources/subscribe"


# --- what stays behind ------------------------------------------------------------------------------------------------


class Keeps(Session):
    """A server that keeps something of each call."""

    kept: ClassVar[list[Any]] = []


@breaks("memory-steady", over="stdio")
class KeepsMemory(Keeps):
    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        self.kept.append(b"x" * (4 << 20))
        return await super().tool_echo(request, arguments)


@breaks("descriptors-steady", over="stdio", revision=MODERN)
class KeepsFiles(Keeps):
    async def tools_list(self, request: Request) -> Message:
        self.kept.append(os.open(os.devnull, os.O_RDONLY))
        return await super().tools_list(request)


@breaks("time-steady", over="stdio")
class KeepsLookingLonger(Keeps):
    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        self.kept.append(0)
        await trio.sleep(0.002 * len(self.kept))
        return await super().tool_fail(request, arguments)


@breaks("refused-call-changes-nothing")
class ServesAfterRefusing(Session):
    """Shows in a list that a call was made, though it was refused."""

    refused = 0

    def invalid_arguments(self, request: Request) -> Message:
        self.refused += 1
        return super().invalid_arguments(request)

    async def resources_list(self, request: Request) -> Message:
        found = await super().resources_list(request)
        return found | {"resources": [{**each, "size": self.refused} for each in found["resources"]]}


@breaks("refused-call-changes-nothing", revision=MODERN)
class DoesWhatItRefuses(Session):
    name = ""

    async def tools_call(self, request: Request) -> Message:
        self.name = str(request.params.get("arguments", {}).get("text", self.name))
        return await super().tools_call(request)

    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        return self.text(f"It failed for {self.name}", failed=True)
