"""Clients that break a rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import trio

from tests.kit.mutants.client import Client, HttpClient
from tests.kit.mutants.model import ClientMutant, registering
from tests.kit.mutants.server import Message

CLIENTS: dict[str, ClientMutant[type[Client]]] = {}
"""By name."""

breaks = registering(CLIENTS)


# --- messages ---------------------------------------------------------------------------------------------------------


@breaks("client-messages-valid")
class SendsJsonRpcOne(Client):
    def outgoing(self, message: Message) -> Iterator[Any]:
        yield message | {"jsonrpc": "1.0"}


@breaks("client-ids-unique", "retry-has-new-id", "initialize-not-cancelled")
class ReusesIds(Client):
    def new_id(self) -> Any:
        return super().new_id() // 2


@breaks("client-sends-no-batch")
class SendsBatches(Client):
    def outgoing(self, message: Message) -> Iterator[Any]:
        yield [message] if message.get("method") == "prompts/get" else message


@breaks("stdin-clean")
class WritesNoise(Client):
    def frame(self, message: Any) -> bytes:
        return b"sending\n" + super().frame(message)


@breaks("stdin-clean")
class PrettyPrintsRequests(Client):
    def frame(self, message: Any) -> bytes:
        return json.dumps(message, indent=1).encode() + b"\n"


# --- opening ----------------------------------------------------------------------------------------------------------


@breaks("initialize-first")
class OpensWithoutName(Client):
    def opening(self) -> Message:
        return {key: value for key, value in super().opening().items() if key != "clientInfo"}


@breaks("initialize-version-supported")
class AsksForVersionNeverHeardOf(Client):
    def opening(self) -> Message:
        return super().opening() | {"protocolVersion": "1999-01-01"}


@breaks("initialized-sent")
class ForgetsInitialized(Client):
    async def opened(self) -> None:
        await trio.lowlevel.checkpoint()


@breaks("version-mismatch-disconnects")
class SpeaksAnyVersion(Client):
    def speaks(self, revision: str) -> bool:
        return True


@breaks("client-capabilities-respected")
class UsesWhatIsUndeclared(Client):
    def may_use(self, capability: str) -> bool:
        return True


# --- answers ----------------------------------------------------------------------------------------------------------


@breaks("questions-answered", "client-ping-answered")
class IgnoresQuestions(Client):
    async def respond(self, question: Message) -> None:
        await trio.lowlevel.checkpoint()


@breaks("questions-answered")
class AnswersQuestionsTwice(Client):
    async def respond(self, question: Message) -> None:
        await super().respond(question)
        await super().respond(question)


@breaks("answers-are-asked-for", "questions-answered", "client-ping-answered")
class AnswersUnderTextIds(Client):
    async def respond(self, question: Message) -> None:
        await super().respond(question | {"id": f"re: {question['id']}"})


@breaks("client-ping-answered")
class RefusesPingsOfServers(Client):
    def response(self, question: Message) -> Message:
        return super().response(question | ({"method": "unknown"} if question["method"] == "ping" else {}))


@breaks("client-method-not-found")
class AnswersUnknownQuestions(Client):
    def response(self, question: Message) -> Message:
        found = super().response(question)
        return {"result": {}} if "error" in found and not self.refuses(question) else found


@breaks("client-results-valid")
class SamplesWithoutModel(Client):
    def answer(self, question: Message) -> Message:
        return {key: value for key, value in super().answer(question).items() if key != "model"}


@breaks("elicitation-answer-conforms")
class FillsFormsWithAnything(Client):
    def answer(self, question: Message) -> Message:
        found = super().answer(question)
        return found | ({"content": {"age": "three"}} if "content" in found and "action" in found else {})


@breaks("root-uri-is-file")
class RootsOfTheWeb(Client):
    def answer(self, question: Message) -> Message:
        found = super().answer(question)
        return {"roots": [{"uri": "https://example.com/"}]} if "roots" in found else found


# --- requests ---------------------------------------------------------------------------------------------------------


@breaks("progress-token-unique")
class TokensAreFractions(Client):
    def token(self) -> Any:
        return 0.5


@breaks("client-cancels-its-own")
class CancelsTheUnknown(Client):
    async def cancel(self, request_id: Any) -> None:
        await super().cancel(f"not {request_id}")


@breaks("initialize-not-cancelled", "initialized-sent")
class CancelsInitialize(Client):
    async def exchange(self, message: Message, tool: Any) -> Message:
        if message["method"] == "initialize":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.cancel_soon, message["id"])
                return await super().exchange(message, tool)
        return await super().exchange(message, tool)

    async def cancel_soon(self, request_id: Any) -> None:
        await trio.lowlevel.checkpoint()
        await self.cancel(request_id)


@breaks("cursor-echoed")
class ChangesCursors(Client):
    def cursor(self, given: str) -> str:
        return given.upper() + "!"


@breaks("request-meta-complete")
class SendsNoCapabilities(Client):
    def meta(self) -> Message:
        return {key: value for key, value in super().meta().items() if not key.endswith("Capabilities")}


@breaks("client-info-sent")
class SendsNoName(Client):
    def meta(self) -> Message:
        return {key: value for key, value in super().meta().items() if not key.endswith("clientInfo")}


@breaks("no-client-responses", "answers-are-asked-for")
class RespondsToNotifications(Client):
    async def notified(self, message: Message) -> None:
        await self.send({"jsonrpc": "2.0", "id": "thanks", "result": {}})


@breaks("request-state-echoed")
class ReadsRequestState(Client):
    def retry(self, result: Message) -> Message:
        found = super().retry(result)
        return found | ({"requestState": found["requestState"].strip('"=')} if "requestState" in found else {})


@breaks("request-state-echoed")
class LosesRequestState(Client):
    def retry(self, result: Message) -> Message:
        return {key: value for key, value in super().retry(result).items() if key != "requestState"} | {
            "inputResponses": super().retry(result).get("inputResponses", {})
        }


@breaks("input-answered", "client-results-valid")
class AnswersTheFirstQuestionOnly(Client):
    def retry(self, result: Message) -> Message:
        found = super().retry(result)
        return found | {"inputResponses": dict([*found.get("inputResponses", {}).items()][:1])}


# --- HTTP -------------------------------------------------------------------------------------------------------------


@breaks("one-post-per-message", "client-sends-no-batch")
class PostsBatches(HttpClient):
    def outgoing(self, message: Message) -> Iterator[Any]:
        yield [message] if message.get("method") == "tools/call" else message


@breaks("accept-header-sent")
class AcceptsJsonOnly(HttpClient):
    def accept(self) -> str:
        return "application/json"


@breaks("version-header-sent")
class NamesNoVersion(HttpClient):
    def common(self) -> dict[str, str]:
        return {name: value for name, value in super().common().items() if self.modern or name[:4] != "MCP-"}


@breaks("version-header-negotiated")
class NamesAnotherVersion(HttpClient):
    def common(self) -> dict[str, str]:
        found = super().common()
        return found | ({"MCP-Protocol-Version": "2025-03-26"} if self.agreed else {})


@breaks("session-id-sent")
class ForgetsItsSession(HttpClient):
    def session_header(self) -> dict[str, str]:
        return {}


@breaks("session-restarted-after-404")
class GoesOnAfter404(HttpClient):
    async def restart(self) -> None:
        await trio.sleep(2)


@breaks("session-restarted-after-404", "session-id-sent")
class RestartsWithoutInitialize(HttpClient):
    async def restart(self) -> None:
        self.session = None


@breaks("last-event-id-real")
class MakesUpEventIds(HttpClient):
    async def resume(self, last: str, message: Message) -> None:
        await super().resume(f"{last}0", message)


@breaks("request-headers-sent")
class NamesNoMethod(HttpClient):
    def headers(self, message: Message, tool: Any) -> dict[str, str]:
        return {name: value for name, value in super().headers(message, tool).items() if name != "Mcp-Method"}


@breaks("request-headers-sent")
class NamesAnotherTool(HttpClient):
    def headers(self, message: Message, tool: Any) -> dict[str, str]:
        found = super().headers(message, tool)
        return found | ({"Mcp-Name": "tool"} if "Mcp-Name" in found else {})


@breaks("parameter-headers-sent")
class SendsNoParameters(HttpClient):
    def parameters(self, tool: Message, arguments: Message) -> dict[str, str]:
        return {}


@breaks("parameter-headers-sent")
class SendsParametersRaw(HttpClient):
    def parameters(self, tool: Message, arguments: Message) -> dict[str, str]:
        found = super().parameters(tool, arguments)
        return {name: value.replace("=?base64?", "").replace("?=", "") for name, value in found.items()}
