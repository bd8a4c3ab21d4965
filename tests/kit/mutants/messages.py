"""Servers that break a rule for messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import trio

from tests.kit.mutants.model import MODERN, Session, breaks, is_response, is_result
from tests.kit.mutants.server import PREFIX, Batch, Message, Refused, Request


class Hesitant(Session):
    """A healthy server that takes a moment, so that requests overlap."""

    async def answer(self, request: Request) -> Message:
        await trio.sleep(0.01)
        return await super().answer(request)


# --- responses --------------------------------------------------------------------------------------------------------


@breaks("answered-once")
class AnswersTwice(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield message
        if is_response(message):
            yield message


@breaks("response-matches-request", "request-answered")
class AnswersAnotherId(Session):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response | ({"id": f"{request.id}?"} if request.method == "tools/call" else {}))


@breaks("response-matches-request", "request-answered", revision=MODERN)
class AnswersWithIdOfAnotherType(Session):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response | ({"id": str(request.id)} if request.method == "tools/call" else {}))


@breaks("request-answered", revision=MODERN)
class AnswersErrorsWithoutId(Session):
    def refuse(self, request_id: Any, refused: Refused) -> Message:
        return {"jsonrpc": "2.0", "error": refused.error}


@breaks("request-answered")
class AnswersErrorsWithNullId(Session):
    def refuse(self, request_id: Any, refused: Refused) -> Message:
        return {"jsonrpc": "2.0", "id": None, "error": refused.error}


@breaks("request-answered")
class NeverAnswersUnknownMethods(Session):
    def respond(self, request: Request, response: Message) -> None:
        if response.get("error", {}).get("code") != -32601:
            super().respond(request, response)


@breaks("request-answered", revision=MODERN)
class LosesResponsesUnderLoad(Hesitant):
    def respond(self, request: Request, response: Message) -> None:
        if len(self.open) < 2:
            super().respond(request, response)


@breaks("response-matches-request")
class AnswersNotifications(Session):
    def take_notification(self, message: Message) -> None:
        super().take_notification(message)
        self.send({"jsonrpc": "2.0", "id": 0, "result": {}})


@breaks("notification-unanswered", revision=MODERN)
class RefusesUnknownNotifications(Session):
    def take_notification(self, message: Message) -> None:
        super().take_notification(message)
        if message["method"] != "notifications/cancelled":
            self.send({"jsonrpc": "2.0", "error": {"code": -32601, "message": "Unknown notification"}})


@breaks("result-xor-error")
class ResultAndError(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield message | ({"error": {"code": 0, "message": "fine"}} if is_result(message) else {})


@breaks("json-rpc-envelope")
class NeitherResultNorError(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield {"jsonrpc": "2.0", "id": message["id"]} if "messages" in message.get("result", ()) else message


@breaks("result-xor-error", revision=MODERN)
class NullBesideResult(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield message | ({"error": None} if is_result(message) else {})


@breaks("result-valid", revision=MODERN)
class ResultIsList(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield message | ({"result": [message["result"]]} if "completion" in message.get("result", ()) else {})


@breaks("json-rpc-envelope")
class SpeaksJsonRpcOne(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield message | {"jsonrpc": "1.0"}


@breaks("json-rpc-envelope", revision=MODERN)
class NamesNoJsonRpc(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield {key: value for key, value in message.items() if key != "jsonrpc" or "method" not in message}


@breaks("error-object")
class FractionalCodes(Session):
    def refuse(self, request_id: Any, refused: Refused) -> Message:
        refused.error["code"] += 0.5
        return super().refuse(request_id, refused)


@breaks("error-object", revision=MODERN)
class CodesAsTexts(Session):
    def refuse(self, request_id: Any, refused: Refused) -> Message:
        refused.error["code"] = str(refused.error["code"])
        return super().refuse(request_id, refused)


@breaks("error-object", revision=MODERN)
class ErrorsWithoutMessage(Session):
    def refuse(self, request_id: Any, refused: Refused) -> Message:
        del refused.error["message"]
        return super().refuse(request_id, refused)


@breaks("error-codes-reserved", revision=MODERN)
class MakesUpCodes(Session):
    def unknown_tool(self, request: Request) -> Message:
        raise Refused(-32050, "Unknown tool")


@breaks("error-codes-retired", "resource-not-found", revision=MODERN)
class RetiredCodes(Session):
    def no_resource(self, request: Request, uri: Any) -> Message:
        raise Refused(-32002, "Resource not found")


@breaks("result-type-present", revision=MODERN)
class ResultTypeMissing(Session):
    def result(self, request: Request, result: Message) -> Message:
        return {key: value for key, value in super().result(request, result).items() if key != "resultType"}


@breaks("result-type-known", revision=MODERN)
class ResultTypeMadeUp(Session):
    def result(self, request: Request, result: Message) -> Message:
        return super().result(request, {"resultType": "finished"} | result)


@breaks("server-info-sent", revision=MODERN)
class ServerUnnamed(Session):
    def result(self, request: Request, result: Message) -> Message:
        return {key: value for key, value in super().result(request, result).items() if key != "_meta"}


@breaks("meta-keys-well-formed")
class MetaKeysMalformed(Session):
    def result(self, request: Request, result: Message) -> Message:
        return super().result(request, result | {"_meta": {"-mine/of course-": 1}})


# --- requests ---------------------------------------------------------------------------------------------------------


@breaks("unknown-method-refused", revision=MODERN)
class AnswersUnknownMethods(Session):
    async def answer(self, request: Request) -> Message:
        try:
            return await super().answer(request)
        except Refused as refused:
            if refused.error["code"] == -32601:
                return {}
            raise


@breaks("unknown-method-code")
class WrongCodeForUnknownMethods(Session):
    def refuse(self, request_id: Any, refused: Refused) -> Message:
        if refused.error["code"] == -32601:
            refused.error["code"] = -32603
        return super().refuse(request_id, refused)


@breaks("incomplete-meta-refused", revision=MODERN)
class AcceptsIncompleteMeta(Session):
    def check_meta(self, request: Request) -> None:
        if isinstance(request.meta.get(f"{PREFIX}clientCapabilities"), dict):
            super().check_meta(request)


@breaks("incomplete-meta-refused", revision=MODERN)
class WrongCodeForIncompleteMeta(Session):
    def check_meta(self, request: Request) -> None:
        if not isinstance(request.meta.get(f"{PREFIX}clientCapabilities"), dict):
            raise Refused(-32600, "Without capabilities")
        super().check_meta(request)


@breaks("unsupported-version-error", revision=MODERN)
class AcceptsAnyVersion(Session):
    def check_meta(self, request: Request) -> None:
        request.meta[f"{PREFIX}protocolVersion"] = MODERN
        super().check_meta(request)


@breaks("unsupported-version-error", revision=MODERN)
class KeepsItsVersionsToItself(Session):
    def refuse(self, request_id: Any, refused: Refused) -> Message:
        if refused.error["code"] == -32022:
            del refused.error["data"]["supported"]
        return super().refuse(request_id, refused)


@breaks("request-id-fresh", "request-answered")
class AsksUnderOneId(Session):
    async def ask(self, request: Request, kind: str) -> Any:
        self.asked = 0
        return await super().ask(request, kind)


@breaks("request-id-type")
class AsksUnderFraction(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield message | ({"id": 1.5} if "method" in message and "id" in message else {})


@breaks("sends-no-requests", revision=MODERN)
class PingsInModernEra(Session):
    async def tool_slow(self, request: Request, arguments: Message) -> Message:
        self.send({"jsonrpc": "2.0", "id": "ping", "method": "ping"}, request)
        return await super().tool_slow(request, arguments)


@breaks("server-cancels-listen-only", revision=MODERN)
class CancelsCalls(Session):
    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/cancelled", {"requestId": request.id}, request)
        return await super().tool_fail(request, arguments)


@breaks("notification-without-id", "sends-no-requests", "json-rpc-envelope", revision=MODERN)
class NumbersItsNotifications(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        yield message | ({"id": 7} if message.get("method") == "notifications/progress" else {})


@breaks("malformed-code")
class WrongCodeForParseErrors(Session):
    def parse(self, text: bytes) -> Any:
        try:
            return super().parse(text)
        except Refused:
            raise Refused(-32603, "Parse error") from None


@breaks("error-codes-legacy-range", "unknown-tool-code", revision=MODERN)
class CodesOfOldPrograms(Session):
    def unknown_tool(self, request: Request) -> Message:
        raise Refused(-32001, "Unknown tool")


@breaks("error-codes-reserved-json-rpc", "unknown-tool-code", revision=MODERN)
class CodesOfJsonRpc(Session):
    def unknown_tool(self, request: Request) -> Message:
        raise Refused(-32500, "Unknown tool")


@breaks("trace-context-format", revision=MODERN)
class TraceContextMalformed(Session):
    def result(self, request: Request, result: Message) -> Message:
        return super().result(request, result | {"_meta": {"traceparent": "here"}})


@breaks("request-valid", "sampling-message-shape")
class SamplesWithoutMessages(Session):
    def may_ask(self, kind: str, request: Request, declared: Message) -> bool:
        return kind == "sampling" and super().may_ask(kind, request, declared)

    def question(self, kind: str, request: Request) -> Message:
        return {"method": "sampling/createMessage", "params": {"maxTokens": 10}}


@breaks("cancel-known-request")
class CancelsTheUnknown(Session):
    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/cancelled", {"requestId": "nothing"}, request)
        return await super().tool_fail(request, arguments)


@breaks("cancel-names-request", "notification-valid")
class CancelsWithoutId(Session):
    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/cancelled", {}, request)
        return await super().tool_fail(request, arguments)


@breaks("cancel-open-request", messages=10)  # another call has to come first, so that the answer is in time
class CancelsWhatIsAnswered(Session):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response)
        if self.asked and not self.questions and request.method != "tools/call":
            self.notify("notifications/cancelled", {"requestId": f"question {self.asked}"})


@breaks("extension-fallback", "result-type-known", revision=MODERN)
class AnswersWithTasks(Session):
    async def tool_add(self, request: Request, arguments: Message) -> Message:
        return {"resultType": "task", "content": []}


# --- batches ----------------------------------------------------------------------------------------------------------


@breaks("response-matches-request", revision="2025-03-26")
class GrowsBatches(Session):
    def respond_to_batch(self, batch: Batch, last: Request) -> None:
        batch.responses.append({"jsonrpc": "2.0", "id": "one more", "result": {}})
        super().respond_to_batch(batch, last)


@breaks("batch-supported", revision="2025-03-26")
class ShrinksBatches(Session):
    def respond_to_batch(self, batch: Batch, last: Request) -> None:
        batch.responses[1:] = []
        super().respond_to_batch(batch, last)


@breaks("batch-supported", "request-answered", revision="2025-03-26")
class NestsBatches(Session):
    def respond_to_batch(self, batch: Batch, last: Request) -> None:
        self.deliver([batch.responses], last)


# --- lines ------------------------------------------------------------------------------------------------------------


@breaks("stdout-clean")
class PrintsNoise(Session):
    def frame(self, message: Any) -> bytes:
        return (b"called\n" if is_result(message) and "content" in message["result"] else b"") + super().frame(message)


@breaks("one-message-a-line", "stdout-clean", "request-answered", revision=MODERN)
class BreaksLines(Session):
    def frame(self, message: Any) -> bytes:
        line = super().frame(message)
        return line.replace(b",", b",\n", 1) if is_result(message) and "content" in message["result"] else line


@breaks("utf-8", "stdout-clean", "request-answered")
class WritesLatin(Session):
    def frame(self, message: Any) -> bytes:
        return json.dumps(message, ensure_ascii=False).encode("latin-1", "replace") + b"\n"


@breaks("stdout-clean", "request-answered", revision=MODERN)
class WritesNaN(Session):
    async def tool_add(self, request: Request, arguments: Message) -> Message:
        return await super().tool_add(request, arguments) | {"_meta": {"com.example/cost": float("nan")}}


@breaks("stdin-close-exits", over="stdio", revision=MODERN)
class StaysAfterTheEndOfInput(Session):
    async def read(self, stream: trio.abc.ReceiveStream) -> None:
        await super().read(stream)
        await trio.sleep(60)


@breaks("websocket-messages", over="ws")
class SendsNoiseInFrames(Session):
    def frame(self, message: Any) -> bytes:
        noise = isinstance(message, dict) and message.get("method") == "notifications/message"
        return b"called" if noise else super().frame(message)
