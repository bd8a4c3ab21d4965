"""Servers that break a rule for the handshake, capabilities, lists, or how a server behaves over time."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import trio

from tests.kit.mutants.model import LEGACY, MODERN, Session, breaks
from tests.kit.mutants.server import PAGE, Message, Refused, Request, Twin

# --- handshake --------------------------------------------------------------------------------------------------------


@breaks("version-offered", "version-offered-latest")
class EchoesAnyVersion(Session):
    async def initialize(self, request: Request) -> Message:
        return await super().initialize(request) | {"protocolVersion": request.params.get("protocolVersion")}


@breaks("version-offered-latest")
class OffersOldestVersion(Session):
    async def initialize(self, request: Request) -> Message:
        known = request.params.get("protocolVersion") in LEGACY
        return await super().initialize(request) | ({} if known else {"protocolVersion": LEGACY[0]})


@breaks("initialize-answered")
class WithoutServerInfo(Session):
    async def initialize(self, request: Request) -> Message:
        return {key: value for key, value in (await super().initialize(request)).items() if key != "serverInfo"}


@breaks("server-waits-for-initialized")
class AsksTooEarly(Session):
    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response)
        if request.method == "initialize":
            self.asked += 1
            self.send({"jsonrpc": "2.0", "id": f"early {self.asked}", "method": "roots/list"}, request)


@breaks("ping-answered")
class AnswersPingsWithContent(Session):
    async def ping(self, request: Request) -> Message:
        return {"pong": True}


@breaks("ping-answered")
class RefusesPings(Session):
    async def ping(self, request: Request) -> Message:
        raise Refused(-32601, "Unknown method ping")


@breaks("result-valid", revision=MODERN)
class DiscoversNoVersions(Session):
    async def server_discover(self, request: Request) -> Message:
        return {"capabilities": self.declared(request)}


@breaks("discover-answered", revision=MODERN)
class DiscoversOnce(Session):
    known = False

    async def server_discover(self, request: Request) -> Message:
        if self.known:
            raise Refused(-32601, "Unknown method")
        self.known = True
        return await super().server_discover(request)


# --- capabilities -----------------------------------------------------------------------------------------------------


def _without(name: str) -> Any:
    """Return a habit of declaring all but one capability."""

    def declared(self: Session, request: Request) -> Message:
        return {key: value for key, value in Session.declared(self, request).items() if key != name}

    return declared


@breaks("capabilities-declared")
class LogsUndeclared(Session):
    declared = _without("logging")


@breaks("capabilities-declared", revision=MODERN)
class OffersPromptsUndeclared(Session):
    declared = _without("prompts")


@breaks("capabilities-respected")
class AnnouncesChangesUndeclared(Session):
    def declared(self, request: Request) -> Message:
        return super().declared(request) | {"tools": {}}


@breaks("capabilities-respected", "updates-only-subscribed")
class UpdatesUndeclared(Session):
    def declared(self, request: Request) -> Message:
        return super().declared(request) | {"resources": {"listChanged": True}}

    def updated(self, uri: str) -> None:
        self.notify("notifications/resources/updated", {"uri": uri})


@breaks("lists-answered", revision=MODERN)
class ListsPromptsOnce(Session):
    listed = False

    async def prompts_list(self, request: Request) -> Message:
        if self.listed and "cursor" not in request.params:
            raise Refused(-32601, "Unknown method")
        self.listed = True
        return await super().prompts_list(request)


@breaks("input-within-capabilities")
class SamplesWithTools(Session):
    def may_ask(self, kind: str, request: Request, declared: Message) -> bool:
        return kind == "sampling" and super().may_ask(kind, request, declared)

    def question(self, kind: str, request: Request) -> Message:
        found = super().question(kind, request)
        return found | {"params": found["params"] | {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}


# --- lists ------------------------------------------------------------------------------------------------------------


@breaks("cache-hints-present", revision=MODERN)
class WithoutCacheHints(Session):
    def result(self, request: Request, result: Message) -> Message:
        return {key: value for key, value in super().result(request, result).items() if key != "ttlMs"}


@breaks("cache-hints-present", revision=MODERN)
class NegativeTimeToLive(Session):
    def result(self, request: Request, result: Message) -> Message:
        found = super().result(request, result)
        return found | ({"ttlMs": -1} if "ttlMs" in found else {})


@breaks("cache-scope-same-on-pages", revision=MODERN)
class CacheScopeOfItsOwnForEachPage(Session):
    def result(self, request: Request, result: Message) -> Message:
        found = super().result(request, result)
        return found | ({"cacheScope": "private"} if "cursor" in request.params and "ttlMs" in found else {})


@breaks("cursors-stable", "tool-names-unique")
class ListsPageTwice(Session):
    def page(self, request: Request, field: str, items: list[Message]) -> Message:
        return super().page(request, field, items) | ({field: items[:PAGE]} if self.place(request) else {})


@breaks("bad-cursor-refused")
class AcceptsAnyCursor(Session):
    def place(self, request: Request) -> int:
        try:
            return super().place(request)
        except Refused:
            return 0


@breaks("bad-cursor-refused", revision=MODERN)
class WrongCodeForBadCursor(Session):
    def place(self, request: Request) -> int:
        try:
            return super().place(request)
        except Refused:
            raise Refused(-32603, "Unknown cursor") from None


@breaks("list-order-stable", revision=MODERN)
class ListsInAnyOrder(Session):
    turn = 0

    def tools(self, request: Request) -> list[Message]:
        self.turn += "cursor" not in request.params
        first, second, *rest = super().tools(request)
        return [first, second, *rest] if self.turn % 2 else [second, first, *rest]


@breaks("list-same-on-each-connection", revision=MODERN, messages=10)
class ListsByConnection(Session):
    async def resources_templates_list(self, request: Request) -> Message:
        found = await super().resources_templates_list(request)
        return found if self.number % 2 else {"resourceTemplates": []}


# --- over time --------------------------------------------------------------------------------------------------------


@breaks("request-answered")
class HangsOnMalformedInput(Session):
    hung = False

    def receive(self, text: bytes, origin: Any = None) -> None:
        self.hung = self.hung or not text.strip().startswith((b"{", b"["))
        if not self.hung:
            super().receive(text, origin)


@breaks("request-answered")
class DiesAfterManyRequests(Session):
    async def tools_call(self, request: Request) -> Message:
        if self.twin.served > 60:
            self.nursery.cancel_scope.cancel()
        return await super().tools_call(request)


@breaks("bad-cancel-ignored", "cancel-races-survived", "request-answered", revision=MODERN)
class DiesOfUnknownCancellation(Session):
    def cancel(self, request_id: Any) -> None:
        if not any(request_id == request.id for request in self.open.values()):
            self.nursery.cancel_scope.cancel()
        super().cancel(request_id)


@breaks("cancel-races-survived", "bad-cancel-ignored", "request-answered", revision=MODERN)
class DiesOfLateCancellation(Session):
    last: Any = None

    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response)
        self.last = request.id

    def cancel(self, request_id: Any) -> None:
        if request_id == self.last:
            self.nursery.cancel_scope.cancel()
        super().cancel(request_id)


@breaks("ping-answered", "request-answered")
class SlowerWithEachRequest(Session):
    async def answer(self, request: Request) -> Message:
        await trio.sleep(min(6, 0.05 * self.twin.served))
        return await super().answer(request)


@breaks("ping-answered")
class BlocksAllForSlowTool(Session):
    lock: trio.Lock | None = None

    async def response(self, request: Request) -> Message:
        self.lock = self.lock or trio.Lock()
        async with self.lock:
            return await super().response(request)

    async def tool_slow(self, request: Request, arguments: Message) -> Message:
        await trio.sleep(8)
        return await super().tool_slow(request, arguments)


@breaks("listen-acknowledged-first", "request-answered", revision=MODERN)
class QueuesBehindSubscriptions(Session):
    async def response(self, request: Request) -> Message:
        for listener in [*self.listening.values()]:
            await listener["ended"].wait()
        return await super().response(request)


# --- resources and the like of other sessions -------------------------------------------------------------------------


@breaks("response-matches-request")
class LeaksResponsesToOthers(Session):
    # Also to the next one that is opened: which of the two comes first depends on the order in which Trio runs tasks.
    leaked: ClassVar[WeakKeyDictionary[Twin, Message]] = WeakKeyDictionary()

    def respond(self, request: Request, response: Message) -> None:
        super().respond(request, response)
        if request.method == "initialize" and self.twin in self.leaked:
            self.send(self.leaked.pop(self.twin))
        if request.method == "tools/call":
            self.leaked[self.twin] = response
            for session in self.twin.sessions:
                if session is not self:
                    session.send(response)


@breaks("updates-only-subscribed")
class LeaksSubscriptionsToOthers(Session):
    def updated(self, uri: str) -> None:
        if any(uri in session.subscribed for session in self.twin.sessions):
            self.notify("notifications/resources/updated", {"uri": uri})


# --- what the handshake settles ---------------------------------------------------------------------------------------


@breaks("negotiated-version-kept")
class SpeaksOfLaterRevisions(Session):
    async def tool_slow(self, request: Request, arguments: Message) -> Message:
        self.notify("notifications/subscriptions/acknowledged", {"notifications": {}})
        return await super().tool_slow(request, arguments)


@breaks("extension-names", revision=MODERN)
class ExtensionsWithoutPrefix(Session):
    def declared(self, request: Request) -> Message:
        return super().declared(request) | {"extensions": {"tasks": {}}}


class ModernOnly(Session):
    """A healthy server of the modern era alone."""

    supported = (MODERN,)

    async def initialize(self, request: Request) -> Message:
        raise Refused(-32022, "Unsupported protocol version", {"supported": [MODERN], "requested": "?"})


@breaks("initialize-refusal-names-versions", revision=MODERN)
class RefusesInitializeWithoutAWord(ModernOnly):
    async def initialize(self, request: Request) -> Message:
        raise Refused(-32601, "Unknown method")


@breaks("connection-not-required", "discover-answered", "list-same-on-each-connection", revision=MODERN)
class ServesOneConnectionOnly(Session):
    async def answer(self, request: Request) -> Message:
        if not self.is_alone() and max(self.twin.sessions, key=lambda each: each.number) is self:
            raise Refused(-32600, "Another connection is open")
        return await super().answer(request)
