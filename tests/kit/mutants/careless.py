"""Clients that are careless with what a server sends or asks, and break a rule by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tests.kit.mutants.client import CAPABILITIES, INFO, Client, HttpClient
from tests.kit.mutants.clients import breaks
from tests.kit.mutants.server import LEGACY, PREFIX, Message

# --- capabilities and questions ---------------------------------------------------------------------------------------


class Declares(Client):
    """A client with other capabilities."""

    capabilities: ClassVar[Message] = {}

    def opening(self) -> Message:
        return super().opening() | {"capabilities": self.capabilities}

    def meta(self) -> Message:
        return super().meta() | {f"{PREFIX}clientCapabilities": self.capabilities}


@breaks("client-capabilities-declared")
class DeclaresNothing(Declares):
    pass


@breaks("client-extension-names")
class DeclaresBareExtensions(Declares):
    capabilities: ClassVar[Message] = CAPABILITIES | {"extensions": {"bare": {}}}


@breaks("roots-change-announced")
class ChangesRootsSilently(Declares):
    capabilities: ClassVar[Message] = CAPABILITIES | {"roots": {"listChanged": True}}

    def answer(self, question: Message) -> Message:
        self.counted += 1
        changed = {"roots": [{"uri": f"file:///{self.counted}"}]}
        return changed if question["method"] == "roots/list" else super().answer(question)


@breaks("tool-choice-respected")
class UsesNoTools(Declares):
    capabilities: ClassVar[Message] = CAPABILITIES | {"sampling": {"tools": {}}}

    def refuses(self, question: Message) -> bool:
        return question.get("params", {}).get("mode") == "url"


@breaks("sampling-tools-refused")
class SamplesWithTools(Client):
    def refuses(self, question: Message) -> bool:
        return question.get("params", {}).get("mode") == "url"


@breaks("elicitation-mode-refused")
class AcceptsAnyMode(Client):
    def refuses(self, question: Message) -> bool:
        return "tools" in question.get("params", {})


@breaks("elicitation-mode-supported")
class RefusesForms(Client):
    def refuses(self, question: Message) -> bool:
        return super().refuses(question) or question["method"] == "elicitation/create"


@breaks("max-tokens-respected")
class SaysTooMuch(Client):
    def answer(self, question: Message) -> Message:
        found = super().answer(question)
        return found | {"content": {"type": "text", "text": "x" * 10_000}} if "model" in found else found


@breaks("client-progress-known")
class ReportsStrangeProgress(Client):
    async def respond(self, question: Message) -> None:
        params = {"progressToken": "strange", "progress": 1}
        await self.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await super().respond(question)


# --- requests and results ---------------------------------------------------------------------------------------------


@breaks("client-meta-keys-well-formed")
class MisnamesMeta(Client):
    def meta(self) -> Message:
        return super().meta() | {"1st/key": INFO}


@breaks("missing-result-type-complete")
class ExpectsResultTypes(Client):
    def is_asked(self, result: Message) -> bool:
        return super().is_asked(result) or (self.modern and bool(result) and "resultType" not in result)

    def retry(self, result: Message) -> Message:
        return super().retry(result) or {"inputResponses": {}}


@breaks("retry-has-new-id", "client-ids-unique")
class RetriesWithTheId(Client):
    def retry(self, result: Message) -> Message:
        self.counted -= 1
        return super().retry(result)


@breaks("empty-cursor-followed")
class StopsAtEmptyCursors(Client):
    def has_more(self, page: Message) -> bool:
        return bool(page.get("nextCursor"))


@breaks("cursor-not-kept")
class KeepsCursors(Client):
    kept: tuple[str, str] | None = None

    async def every(self, method: str, field: str) -> list[Message]:
        page = (await self.ask(method)).get("result", {})
        if "nextCursor" in page:
            self.kept = method, page["nextCursor"]
        return []

    async def run(self) -> None:
        await super().run()
        if self.kept is not None and not self.modern:
            self.modern, self.agreed, self.revision = True, False, LEGACY[-1]
            await self.open()
            await self.shake_hands()
            await self.ask(self.kept[0], {"cursor": self.kept[1]})


@breaks("nothing-before-initialize-result", "client-capabilities-respected")
class Hurries(Client):
    def frame(self, message: Any) -> bytes:
        hurry = {"jsonrpc": "2.0", "id": "hurry", "method": "tools/list"}
        more = super().frame(hurry) if message.get("method") == "initialize" else b""
        return super().frame(message) + more


@breaks("client-task-within-capabilities")
class WantsTasks(Client):
    def arguments(self, tool: Message) -> Message:
        return super().arguments(tool) | ({} if self.modern else {"task": {}})


# --- over HTTP --------------------------------------------------------------------------------------------------------


@breaks("bad-header-annotation-refused")
class CallsAnything(HttpClient):
    def may_call(self, tool: Message) -> bool:
        return True


@breaks("header-integer-safe")
class RepeatsLargeIntegers(HttpClient):
    def arguments(self, tool: Message) -> Message:
        found = super().arguments(tool)
        large = {name: 2**53 for name, value in found["arguments"].items() if value == 1 and value is not True}
        return found | {"arguments": found["arguments"] | large}


@breaks("retry-respected")
class ResumesAtOnce(HttpClient):
    async def resume(self, last: str, message: Message) -> None:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last} | self.common()
        await self.fetch("GET", headers, None, None)


@breaks("answer-content-types-read", "initialize-not-cancelled", "initialized-sent", "version-header-sent")
class ReadsStreamsOnly(HttpClient):
    async def take_body(self, text: bytes) -> None:
        pass


class Loads(HttpClient):
    """A client that loads something that it is told about.

    Attributes:
        paths: What it loads.
        secret: The headers that it sends there.
    """

    paths: tuple[str, ...] = ()
    secret: ClassVar[dict[str, str]] = {}

    async def take(self, message: Any) -> None:
        for url in urls(message):
            if (path := urlsplit(url).path) == self.paths[0]:
                for each in (path, *self.paths[1:]):
                    await self.fetch("GET", {"Host": urlsplit(url).netloc} | self.secret, None, None, each)
        await super().take(message)


def urls(value: Any) -> Iterator[str]:
    """Yield the URLs in a message."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(each, str) and each.startswith("http:"):
            yield each
        yield from urls(each)


@breaks("icon-fetch-safe")
class LoadsIcons(Loads):
    paths = ("/icon.png",)


@breaks("icon-without-credentials", "icon-fetch-safe")
class LoadsIconsWithCookies(Loads):
    paths = ("/icon.png",)
    secret: ClassVar[dict[str, str]] = {"Cookie": "a=b"}


@breaks("icon-origin-checked", "icon-fetch-safe")
class LoadsForeignIcons(Loads):
    paths = ("/foreign.png",)


@breaks("icon-redirect-refused", "icon-fetch-safe")
class FollowsRedirects(Loads):
    paths = ("/icon.png", "/moved.png")


@breaks("remote-ref-not-fetched")
class LoadsReferences(Loads):
    paths = ("/schema.json",)


@breaks("elicitation-not-prefetched")
class LoadsPages(Loads):
    paths = ("/visit",)


# --- extensions -------------------------------------------------------------------------------------------------------


@breaks("client-ext-app-types")
class ShowsAnything(Declares):
    capabilities: ClassVar[Message] = CAPABILITIES | {"extensions": {f"{PREFIX}ui": {}}}


@breaks("client-ext-skill-directories")
class ReadsAnyDirectory(Client):
    async def use(self, kind: str, item: Message) -> None:
        if kind == "resources" and self.modern:
            await self.ask("resources/directory/read", {"uri": item["uri"]})
        await super().use(kind, item)
