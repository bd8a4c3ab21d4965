"""Servers that break a rule for tools, resources, prompts, utilities, subscriptions or input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import trio

from tests.kit.mutants.messages import Hesitant
from tests.kit.mutants.model import LATEST, MODERN, Session, breaks
from tests.kit.mutants.server import NAMES, PREFIX, PROMPTS, QUESTIONS, Message, Refused, Request

# --- tools ------------------------------------------------------------------------------------------------------------


@breaks("unknown-tool-refused")
class UnknownToolGivesResult(Session):
    def unknown_tool(self, request: Request) -> Message:
        return self.text("No such tool")


@breaks("unknown-tool-code", revision=MODERN)
class WrongCodeForUnknownTool(Session):
    def unknown_tool(self, request: Request) -> Message:
        raise Refused(-32601, "Unknown tool")


@breaks("tool-arguments-validated")
class AcceptsAnyArguments(Session):
    def invalid_arguments(self, request: Request) -> Message:
        return self.text("done")


@breaks("structured-content-conforms")
class StructuredContentBreaksSchema(Session):
    async def tool_add(self, request: Request, arguments: Message) -> Message:
        return await super().tool_add(request, arguments) | {"structuredContent": {"sum": "three"}}


@breaks("structured-content-conforms", "structured-content-as-text", revision=MODERN)
class StructuredContentMissing(Session):
    async def tool_add(self, request: Request, arguments: Message) -> Message:
        return self.text("3")


@breaks("structured-content-as-text")
class StructuredContentWithoutText(Session):
    async def tool_add(self, request: Request, arguments: Message) -> Message:
        return await super().tool_add(request, arguments) | {"content": []}


@breaks("tool-names-unique")
class TwoToolsOfOneName(Session):
    def tools(self, request: Request) -> list[Message]:
        return [super().tools(request)[0], *super().tools(request)]


@breaks("tool-name-format", revision=MODERN)
class ToolNameWithSpaces(Session):
    def tools(self, request: Request) -> list[Message]:
        return [{"name": "do it", "inputSchema": {"type": "object"}}, *super().tools(request)]


@breaks("tool-input-schema-valid", "schemas-valid", "result-valid", revision=MODERN)
class InputSchemaAsText(Session):
    def tools(self, request: Request) -> list[Message]:
        return [{"name": "count", "inputSchema": "anything"}, *super().tools(request)]


@breaks("schemas-valid", "tool-input-schema-valid")
class InputSchemaInvalid(Session):
    def tools(self, request: Request) -> list[Message]:
        return [{"name": "count", "inputSchema": {"type": "object", "required": "all"}}, *super().tools(request)]


@breaks("header-annotation-valid", revision=MODERN)
class TwoParametersInOneHeader(Session):
    def tools(self, request: Request) -> list[Message]:
        names = {"a": {"type": "string", "x-mcp-header": "One"}, "b": {"type": "string", "x-mcp-header": "one"}}
        tool = {"name": "both", "inputSchema": {"type": "object", "properties": names}}
        return [tool, *super().tools(request)]


@breaks("result-valid")
class ContentWithoutType(Session):
    async def tool_show(self, request: Request, arguments: Message) -> Message:
        return {"content": [{"text": "a picture"}]}


# --- resources --------------------------------------------------------------------------------------------------------


@breaks("resource-not-found", revision=MODERN)
class EmptyContentsForUnknownResource(Session):
    def no_resource(self, request: Request, uri: Any) -> Message:
        return {"contents": []}


@breaks("resource-not-found", revision=MODERN)
class WrongCodeForUnknownResource(Session):
    def no_resource(self, request: Request, uri: Any) -> Message:
        raise Refused(-32601, "Resource not found")


@breaks("blob-is-base64", revision=MODERN)
class BlobNotInBase64(Session):
    async def resources_read(self, request: Request) -> Message:
        found = await super().resources_read(request)
        return {"contents": [each | ({"blob": "ä?"} if "blob" in each else {}) for each in found["contents"]]}


@breaks("resource-uri-valid")
class UriWithoutScheme(Session):
    async def resources_list(self, request: Request) -> Message:
        return {"resources": [{"uri": "one memo", "name": "one"}]}


@breaks("result-valid")
class ContentsWithoutUri(Session):
    async def resources_read(self, request: Request) -> Message:
        return {"contents": [{"text": "one"}]} if await super().resources_read(request) else {}


@breaks("updates-only-subscribed")
class UpdatesWithoutSubscription(Session):
    def updated(self, uri: str) -> None:
        self.notify("notifications/resources/updated", {"uri": uri})


# --- prompts and completion -------------------------------------------------------------------------------------------


@breaks("prompt-errors")
class UnknownPromptGivesResult(Session):
    async def prompts_get(self, request: Request) -> Message:
        return await super().prompts_get(request) if request.params.get("name") in PROMPTS else {"messages": []}


@breaks("prompt-errors", revision=MODERN)
class MissingPromptArgumentAccepted(Session):
    async def prompts_get(self, request: Request) -> Message:
        if request.params.get("name") not in PROMPTS:
            return await super().prompts_get(request)
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}


@breaks("prompt-content-valid")
class PromptImageNotInBase64(Session):
    async def prompts_get(self, request: Request) -> Message:
        image = {"type": "image", "data": "not Base64!", "mimeType": "image/png"}
        return await super().prompts_get(request) and {"messages": [{"role": "user", "content": image}]}


@breaks("result-valid", revision=MODERN)
class PromptOfUnknownRole(Session):
    async def prompts_get(self, request: Request) -> Message:
        said = {"role": "system", "content": {"type": "text", "text": "hello"}}
        return await super().prompts_get(request) and {"messages": [said]}


@breaks("completion-at-most-100")
class CompletesTooMuch(Session):
    def completion(self, found: list[str]) -> Message:
        return {"values": NAMES[:101]}


@breaks("completion-errors", revision=MODERN)
class CompletesUnknownPrompts(Session):
    async def completion_complete(self, request: Request) -> Message:
        try:
            return await super().completion_complete(request)
        except Refused:
            return {"completion": {"values": []}}


# --- logging ----------------------------------------------------------------------------------------------------------


@breaks("log-level-errors")
class AcceptsAnyLogLevel(Session):
    async def logging_setlevel(self, request: Request) -> Message:
        return {}


@breaks("log-only-on-request", revision=MODERN)
class LogsUnasked(Session):
    def log(self, request: Request, level: str, data: Any) -> None:
        self.notify("notifications/message", {"level": "emergency", "data": data}, request)


@breaks("notification-valid", "log-level-respected")
class LogsAtUnknownLevel(Session):
    def log(self, request: Request, level: str, data: Any) -> None:
        self.notify("notifications/message", {"level": "loud", "data": data}, request)


# --- progress ---------------------------------------------------------------------------------------------------------


@breaks("no-progress-after-end", "progress-token-known")
class ProgressAfterEnd(Session):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response)
        if request.method == "tools/call":
            self.progress(request, 100, 100)


@breaks("progress-increases")
class ProgressShrinks(Session):
    def progress(self, request: Request, progress: float, total: float) -> None:
        super().progress(request, total - progress, total)


@breaks("progress-increases", revision=MODERN)
class ProgressStands(Session):
    def progress(self, request: Request, progress: float, total: float) -> None:
        super().progress(request, 1, total)


@breaks("progress-token-known")
class ProgressForUnknownToken(Session):
    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/progress", {"progressToken": "mine", "progress": 1}, request)
        return await super().tool_echo(request, arguments)


@breaks("progress-token-known", revision=MODERN)
class ProgressForTokenOfAnotherType(Session):
    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        if message.get("method") == "notifications/progress" and type(message["params"]["progressToken"]) is int:
            message["params"]["progressToken"] = str(message["params"]["progressToken"])
        yield message


@breaks("notification-valid", "progress-increases")
class ProgressAsText(Session):
    def progress(self, request: Request, progress: Any, total: float) -> None:
        super().progress(request, f"{progress} of {total}", total)  # type: ignore[arg-type]


# --- cancellation -----------------------------------------------------------------------------------------------------


@breaks("cancelled-unanswered")
class AnswersCancelledRequests(Session):
    def cancelled(self, request: Request) -> None:
        if request.params.get("name") == "slow":
            self.nursery.start_soon(self.tell, request)

    async def tell(self, request: Request) -> None:
        await trio.sleep(0.1)
        self.respond(request, {"jsonrpc": "2.0", "id": request.id, "error": {"code": 0, "message": "cancelled"}})


@breaks("nothing-after-cancel", revision=MODERN)
class IgnoresCancellations(Session):
    def cancel(self, request_id: Any) -> None:
        if any(request.id == request_id and request.method != "tools/call" for request in self.open.values()):
            super().cancel(request_id)


@breaks("request-answered", revision=MODERN)
class CancelsAllForOne(Hesitant):
    def cancel(self, request_id: Any) -> None:
        for request in self.open.values():
            request.scope.cancel()


@breaks("request-answered")
class CancelsByPrefixOfId(Hesitant):
    def cancel(self, request_id: Any) -> None:
        for request in self.open.values():
            if str(request.id)[:1] == str(request_id)[:1]:
                request.scope.cancel()


# --- subscriptions ----------------------------------------------------------------------------------------------------


@breaks("listen-acknowledged-first", "request-answered", revision=MODERN)
class ForgetsAcknowledgement(Session):
    def acknowledge(self, request: Request, honoured: Message) -> None:
        pass


@breaks("listen-acknowledged-first", revision=MODERN)
class AcknowledgesLate(Session):
    def acknowledge(self, request: Request, honoured: Message) -> None:
        self.tell_listener(request, "notifications/tools/list_changed", {})
        super().acknowledge(request, honoured)


@breaks("acknowledged-within-request", revision=MODERN)
class AcknowledgesMoreThanAsked(Session):
    def honoured(self, wanted: Message) -> Message:
        return {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


@breaks("listen-id-on-notifications", "listen-acknowledged-first", revision=MODERN)
class NotificationsWithoutSubscription(Session):
    def tell_listener(self, request: Request, method: str, params: Message) -> None:
        if method.endswith("acknowledged"):
            super().tell_listener(request, method, params)
        else:
            self.notify(method, params, request)


@breaks("listen-id-on-notifications", "listen-acknowledged-first", revision=MODERN)
class NotificationsForAnotherSubscription(Session):
    def tell_listener(self, request: Request, method: str, params: Message) -> None:
        self.notify(method, params | {"_meta": {f"{PREFIX}subscriptionId": "another"}}, request)


@breaks("listen-only-requested", revision=MODERN)
class TellsOfAllChanges(Session):
    def changed(self, kind: str) -> None:
        for each in self.listening.values():
            self.tell_listener(each["request"], f"notifications/{kind}/list_changed", {})


@breaks("listen-only-requested", revision=MODERN)
class TellsOfAllResources(Session):
    def updated(self, uri: str) -> None:
        for each in self.listening.values():
            self.tell_listener(each["request"], "notifications/resources/updated", {"uri": uri})


@breaks("listen-acknowledged-first", "request-answered", revision=MODERN)
class LosesNotificationsUnderLoad(Hesitant):
    def acknowledge(self, request: Request, honoured: Message) -> None:
        if len(self.open) < 2:
            super().acknowledge(request, honoured)


# --- input ------------------------------------------------------------------------------------------------------------


@breaks("input-required-where-allowed", revision=MODERN)
class AsksWhileCompleting(Session):
    async def completion_complete(self, request: Request) -> Message:
        return {"resultType": "input_required", "requestState": "more"}


@breaks("input-required-has-content", revision=MODERN)
class AsksForNothing(Session):
    def ask_in_result(self, request: Request, kinds: list[str]) -> Message:
        found = super().ask_in_result(request, kinds)
        return found if "content" in found else {"resultType": "input_required"}


@breaks("input-requests-known", revision=MODERN)
class AsksWithUnknownMethod(Session):
    def question(self, kind: str, request: Request) -> Message:
        return {"method": "user/ask", "params": {"message": "Who?"}}


@breaks("input-request-keys-unique", revision=MODERN)
class AsksTwiceUnderOneKey(Session):
    def frame(self, message: Any) -> bytes:
        return (
            super()
            .frame(message)
            .replace(b'"inputRequests":{', b'"inputRequests":{"elicitation":{"method":"roots/list"},')
        )


@breaks("missing-input-asked-again", revision=MODERN)
class RefusesMissingInput(Session):
    def ask_in_result(self, request: Request, kinds: list[str]) -> Message:
        found = super().ask_in_result(request, kinds)
        if "content" not in found and "requestState" in request.params:
            raise Refused(-32602, "Not all was answered")
        return found


@breaks("elicitation-shape", "request-valid")
class AsksWithoutMessage(Session):
    def question(self, kind: str, request: Request) -> Message:
        found = QUESTIONS[kind]
        return (
            found | {"params": {"requestedSchema": {"type": "object", "properties": {}}}}
            if "params" in found
            else found
        )


@breaks("sampling-message-shape", revision=MODERN)
class SamplesWithoutRole(Session):
    def question(self, kind: str, request: Request) -> Message:
        if kind != "sampling":
            return super().question(kind, request)
        said = {"content": {"type": "text", "text": "Who?"}}
        return {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": 10}}


@breaks("bad-input-responses-refused", revision=MODERN)
class AcceptsAnyInput(Session):
    def fits(self, kind: str, response: Any) -> bool:
        return True


@breaks("request-state-tampering-survived", "request-answered", revision=MODERN)
class LosesRequestsWithTamperedState(Session):
    hung = False

    async def tool_ask(self, request: Request, arguments: Message) -> Message:
        tampered = request.params.get("requestState", self.state(request)) != self.state(request)
        if tampered and not self.hung:
            self.hung = True
            await trio.sleep(60)
        return await super().tool_ask(request, arguments)


def _asking(kind: str, question: Message) -> Any:
    """Return the habit of asking this."""

    def may_ask(self: Session, found: str, request: Request, declared: Message) -> bool:
        return found == kind and Session.may_ask(self, found, request, declared)

    def asked(self: Session, found: str, request: Request) -> Message:
        return question

    return {"may_ask": may_ask, "question": asked}


def _asks(name: str, kind: str, question: Message, rule: str, *also: str, revision: str = LATEST) -> None:
    """Register a mutant that asks this."""
    method = {"elicitation": "elicitation/create", "sampling": "sampling/createMessage"}[kind]
    habit = type(name, (Session,), _asking(kind, {"method": method, "params": question}))
    breaks(rule, *also, revision=revision)(habit)


FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
URL = {"mode": "url", "message": "Look", "url": "https://example.com/", "elicitationId": "e1"}
SAID: Message = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}
USE = {"type": "tool_use", "id": "u1", "name": "t", "input": {}}

_asks("AsksForUrlOfNothing", "elicitation", URL | {"url": "not a url"}, "elicitation-url-valid", "elicitation-https")
_asks("AsksForPlainUrl", "elicitation", URL | {"url": "http://example.com/"}, "elicitation-https")
_asks(
    "AsksWithLinks",
    "elicitation",
    {"message": "See https://example.com/ first", "requestedSchema": FORM},
    "elicitation-no-links",
)
_asks(
    "AsksByVoice",
    "elicitation",
    {"mode": "voice", "message": "Who?", "requestedSchema": FORM},
    "elicitation-within-modes",
    "elicitation-shape",
    revision=MODERN,
)
_asks(
    "SamplesWithContext",
    "sampling",
    SAID | {"includeContext": "allServers"},
    "sampling-context-declared",
    revision=MODERN,
)
_asks(
    "SamplesWithoutToolResults",
    "sampling",
    SAID | {"messages": [*SAID["messages"], {"role": "assistant", "content": [USE]}]},
    "sampling-tool-balance",
)


@breaks("elicitation-complete-known")
class CompletesUnknownElicitations(Session):
    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/elicitation/complete", {"elicitationId": "nothing"}, request)
        return await super().tool_fail(request, arguments)


@breaks("url-required-error-shape")
class RequiresUrlsButNamesNone(Session):
    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        raise Refused(-32042, "Visit a page first", {"elicitations": []})


# --- what the end of the list of rules asks ---------------------------------------------------------------------------


@breaks("resource-not-found-code")
class OddCodeForUnknownResource(Session):
    def no_resource(self, request: Request, uri: Any) -> Message:
        raise Refused(-32603, "Resource not found")


@breaks("malformed-uri-refused", "resource-not-found")
class ServesWhatIsNoUri(Session):
    def no_resource(self, request: Request, uri: Any) -> Message:
        if re.match(r"[a-z]+:[^ ]*$", uri):
            return super().no_resource(request, uri)
        return {"contents": [{"uri": uri, "text": "whatever"}]}


@breaks("path-traversal-refused", "resource-not-found", revision=MODERN)
class ClimbsOut(Session):
    def no_resource(self, request: Request, uri: Any) -> Message:
        if not uri.endswith("/etc/passwd"):
            return super().no_resource(request, uri)
        return {"contents": [{"uri": uri, "text": "root:x:0:0:root:/root:/bin/sh"}]}


@breaks("listen-result-has-id", "listen-teardown-announced", revision=MODERN)
class EndsSubscriptions(Session):
    async def subscriptions_listen(self, request: Request) -> Message:
        with trio.move_on_after(0.1):
            await super().subscriptions_listen(request)
        return {}


@breaks("nothing-after-listen", "listen-result-has-id", "listen-teardown-announced", revision=MODERN)
class TellsOnAfterTheEnd(EndsSubscriptions):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response)
        if request.method == "subscriptions/listen":
            self.tell_listener(request, "notifications/tools/list_changed", {})


@breaks("tool-errors-in-result")
class RefusesInvalidArguments(Session):
    def invalid_arguments(self, request: Request) -> Message:
        raise Refused(-32602, "Invalid arguments")


@breaks("tool-name-case-sensitive", "unknown-tool-refused")
class IgnoresCaseOfTools(Session):
    async def tools_call(self, request: Request) -> Message:
        if isinstance(name := request.params.get("name"), str):
            request.params["name"] = name.lower()
        return await super().tools_call(request)


@breaks("embedded-resource-capability", "capabilities-declared", "capabilities-respected")
class EmbedsUndeclaredResources(Session):
    def declared(self, request: Request) -> Message:
        return {key: value for key, value in super().declared(request).items() if key != "resources"}


@breaks("listen-ends-with-result", revision=MODERN)
class CancelsSubscriptions(Session):
    async def subscriptions_listen(self, request: Request) -> Message:
        with trio.move_on_after(0.1):
            await super().subscriptions_listen(request)
        self.notify("notifications/cancelled", {"requestId": request.id}, request)
        request.scope.cancel()
        await trio.sleep_forever()


@breaks("list-change-announced", messages=14)
class ChangesInSilence(Session):
    more = 0

    async def tools_call(self, request: Request) -> Message:
        self.more += 1
        return await super().tools_call(request)

    async def prompts_list(self, request: Request) -> Message:
        return {"prompts": [{"name": f"prompt{self.more}"}]}


@breaks("schemas-in-2020-12", revision=MODERN)
class SchemasOfOldDrafts(Session):
    def tools(self, request: Request) -> list[Message]:
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
        return [{"name": "old", "inputSchema": schema}, *super().tools(request)]


@breaks("progress-token-type", "notification-valid", "progress-token-known")
class ProgressForNull(Session):
    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/progress", {"progressToken": None, "progress": 1}, request)
        return await super().tool_echo(request, arguments)


@breaks("log-on-own-stream", revision=MODERN)
class LogsForSubscriptions(Session):
    def log(self, request: Request, level: str, data: Any) -> None:
        if f"{PREFIX}logLevel" in request.meta:
            params = {"level": "emergency", "data": data, "_meta": {f"{PREFIX}subscriptionId": request.id}}
            self.notify("notifications/message", params, request)


@breaks("roots-change-survived", "request-answered")
class DiesOfChangedRoots(Session):
    def take_notification(self, message: Message) -> None:
        if message["method"] == "notifications/roots/list_changed":
            self.nursery.cancel_scope.cancel()
        super().take_notification(message)
