"""Servers whose fault is in the handshake, so that there is nothing to check but that."""

from __future__ import annotations

import json
from typing import Any

import trio

from tests.kit.mutants.model import MODERN, Session, breaks
from tests.kit.mutants.server import Message, Request


@breaks("response-matches-request")
class AnswersTheHandshakeWithATextAsId(Session):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response | ({"id": str(request.id)} if request.method == "initialize" else {}))


@breaks("response-matches-request", revision=MODERN)
class AnswersDiscoveryWithATextAsId(Session):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response | {"id": str(request.id)})


class Frames(Session):
    """A server that frames the response to the handshake in its own way."""

    def frame(self, message: Any) -> bytes:
        whole = super().frame(message)
        return self.reframed(whole) if "protocolVersion" in message.get("result", {}) else whole

    def reframed(self, line: bytes) -> bytes:
        raise NotImplementedError


@breaks("one-message-a-line", "stdout-clean")
class IndentsTheHandshake(Frames):
    def reframed(self, line: bytes) -> bytes:
        return json.dumps(json.loads(line), indent=2).encode() + b"\n"


@breaks("one-message-a-line", "stdout-clean")
class TearsTheHandshake(Frames):
    def reframed(self, line: bytes) -> bytes:
        return line[:30] + b"\n" + line[30:]


@breaks("one-message-a-line")
class LeavesTheHandshakeUnended(Frames):
    def reframed(self, line: bytes) -> bytes:
        return line.rstrip()


@breaks("version-offered")
class AgreesToAMadeUpRevision(Session):
    async def initialize(self, request: Request) -> Message:
        return await super().initialize(request) | {"protocolVersion": "2099-01-01"}


@breaks("initialize-answered", "result-valid")
class AnswersTheHandshakeWithNothing(Session):
    async def initialize(self, request: Request) -> Message:
        await super().initialize(request)
        return {}


class Dies(Session):
    """A server that ends in the middle of a request."""

    async def die(self) -> Message:
        self.nursery.cancel_scope.cancel()
        await trio.sleep_forever()


@breaks("request-answered")
class DiesOfTheHandshake(Dies):
    async def initialize(self, request: Request) -> Message:
        return await self.die()


@breaks("request-answered", revision=MODERN)
class DiesOfDiscovery(Dies):
    async def server_discover(self, request: Request) -> Message:
        return await self.die()
