"""Servers that break a rule for Streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import attrs
import trio

from tests.kit.mutants.lifecycle import ModernOnly
from tests.kit.mutants.messages import AcceptsAnyVersion
from tests.kit.mutants.model import MODERN, Session, Web, breaks
from tests.kit.mutants.server import Refused, Request
from tests.kit.mutants.web import EVENTS, JSON, Answer, Head, Life, Stream

# --- requests and responses -------------------------------------------------------------------------------------------


@breaks("origin-checked")
class AcceptsForeignOrigins(Web):
    def is_allowed(self, origin: str | None) -> bool:
        return True


@breaks("origin-checked", revision=MODERN)
class RefusesForeignOriginsWith400(Web):
    async def handle(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        answer = await super().handle(head, body, nursery)
        return attrs.evolve(answer, status=400) if answer.status == 403 else answer


@breaks("notification-accepted-202")
class AcceptsNotificationsWith200(Web):
    def accepted(self) -> Answer:
        return Answer(200)


@breaks("notification-accepted-202", revision=MODERN)
class AcceptsNotificationsWithBody(Web):
    def accepted(self) -> Answer:
        return Answer(202, JSON, b"{}")


@breaks("answer-content-type")
class AnswersAsPlainText(Web):
    def json_headers(self) -> dict[str, str]:
        return {"Content-Type": "text/plain"}


@breaks("answer-content-type", revision=MODERN)
class AnswersWithoutContentType(Web):
    def json_headers(self) -> dict[str, str]:
        return {}


@breaks("unknown-method-404", revision=MODERN)
class UnknownMethodsWith200(Web):
    def status_of(self, response: Any, *, modern: bool) -> int:
        return 200


@breaks("notification-refused-with-error", "notification-accepted-202", "notification-unanswered")
class RefusesNotificationsWith200(Web):
    def accepted(self) -> Answer:
        return attrs.evolve(self.refuse(400, -32600, "No notifications"), status=200)


@breaks("get-stream-or-405")
class AnswersGetWithJson(Web):
    def get(self, head: Head) -> Answer:
        return Answer(200, JSON, b"{}")


@breaks("get-stream-or-405")
class RefusesGetWith404(Web):
    def get(self, head: Head) -> Answer:
        return Answer(404)


# --- the headers of the modern era ------------------------------------------------------------------------------------


@breaks("header-mismatch-refused", "missing-header-refused", revision=MODERN)
class SkipsHeaderValidation(Web):
    def check_version(self, head: Head, meta: Any) -> None:
        pass

    def check_method(self, head: Head, message: Any) -> None:
        pass

    def check_name(self, head: Head, message: Any) -> None:
        pass

    def check_parameters(self, head: Head, message: Any) -> None:
        pass


@breaks("header-mismatch-refused", "missing-header-refused", revision=MODERN)
class SkipsMethodHeader(Web):
    def check_method(self, head: Head, message: Any) -> None:
        pass


@breaks("header-mismatch-refused", "missing-header-refused", "bad-header-characters-refused", revision=MODERN)
class SkipsNameHeader(Web):
    def check_name(self, head: Head, message: Any) -> None:
        pass


@breaks("header-mismatch-refused", "missing-header-refused", "bad-header-characters-refused", revision=MODERN)
class SkipsParameterHeaders(Web):
    def check_parameters(self, head: Head, message: Any) -> None:
        pass


@breaks("missing-header-refused", revision=MODERN)
class SkipsMissingHeaders(Web):
    def check_method(self, head: Head, message: Any) -> None:
        if "mcp-method" in head.headers:
            super().check_method(head, message)


@breaks("header-mismatch-refused", revision=MODERN)
class WrongCodeForHeaderMismatch(Web):
    def check_method(self, head: Head, message: Any) -> None:
        try:
            super().check_method(head, message)
        except Refused:
            raise Refused(-32600, "Header mismatch") from None


@breaks("encoded-header-decoded", "header-mismatch-refused", revision=MODERN)
class ComparesEncodedHeaders(Web):
    def decoded(self, value: str | None) -> str | None:
        return value


@breaks("null-argument-header-not-expected", revision=MODERN)
class ExpectsHeaderOfMissingArgument(Web):
    def check_parameters(self, head: Head, message: Any) -> None:
        super().check_parameters(head, message)
        if message["params"].get("name") == "route" and "mcp-param-region" not in head.headers:
            raise Refused(-32020, "Without Mcp-Param-Region")


@breaks("header-names-case-insensitive", revision=MODERN)
class ExpectsCaseOfHeaders(Web):
    def named(self, name: str) -> str:
        known = name.islower() or name.istitle() or name == "MCP-Protocol-Version"
        return name.lower() if known or not name.lower().startswith("mcp-") else name


@breaks("unsupported-version-error", "header-mismatch-refused", "unsupported-version-status", revision=MODERN)
class ServesAnyVersion(Web):
    session = AcceptsAnyVersion

    def check_version(self, head: Head, meta: Any) -> None:
        pass


# --- sessions ---------------------------------------------------------------------------------------------------------


@breaks("session-id-visible-ascii")
class SessionIdWithSpaces(Web):
    def new_id(self) -> str:
        return f"session {super().new_id()}"


@breaks("session-id-unpredictable")
class SessionIdsCounted(Web):
    def new_id(self) -> str:
        return str(len(self.lives) + 1)


@breaks("session-id-required")
class MissingSessionIdIs404(Web):
    def find(self, head: Head) -> Life | Answer:
        return super().find(head) if head.session is not None else Answer(404)


@breaks("session-ended-404")
class EndedSessionAnswers(Web):
    def end(self, life: Life) -> None:
        pass


@breaks("session-ended-404")
class EndedSessionIs400(Web):
    def find(self, head: Head) -> Life | Answer:
        found = super().find(head)
        return attrs.evolve(found, status=400) if isinstance(found, Answer) else found


@breaks("version-header-refused")
class AcceptsAnyVersionHeader(Web):
    def is_modern(self, version: str | None) -> bool:
        return version == MODERN

    def knows(self, version: str | None) -> bool:
        return True


# --- streams ----------------------------------------------------------------------------------------------------------


@breaks("get-stream-no-response", "request-answered", "stream-has-response")
class ResponsesOnGetStream(Web):
    def choose(self, life: Life, message: Any, about: Request | None) -> Stream:
        if about is not None and about.method == "tools/call" and "method" not in message and life.alone.reader:
            return life.alone
        return super().choose(life, message, about)


@breaks("get-stream-unrelated", "progress-token-known")
class ProgressOnGetStream(Web):
    def choose(self, life: Life, message: Any, about: Request | None) -> Stream:
        if isinstance(message, dict) and message.get("method") == "notifications/progress":
            return life.alone
        return super().choose(life, message, about)


@breaks("message-on-one-stream", "request-answered")
class BroadcastsMessages(Web):
    def choose(self, life: Life, message: Any, about: Request | None) -> Stream:
        chosen = super().choose(life, message, about)
        if chosen is not life.alone and "method" in message:
            life.alone.put(message)
        return chosen


@breaks("stream-primed")
class StreamsNotPrimed(Web):
    def prime(self, life: Life) -> Iterator[None]:
        yield from ()


@breaks("event-ids-unique")
class EventIdsOfEachStream(Web):
    def event_id(self, stream: Stream, index: int) -> str | None:
        return str(index) if stream.number else None


@breaks("stream-unbuffered-header", revision=MODERN)
class StreamsBuffered(Web):
    async def handle(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        answer = await super().handle(head, body, nursery)
        headers = {name: value for name, value in answer.headers.items() if name != "X-Accel-Buffering"}
        return attrs.evolve(answer, headers=headers)


@breaks("stream-ends-after-response")
class StreamsStayOpen(Web):
    async def events(self, stream: Stream, start: int) -> AsyncIterator[bytes]:
        async for each in super().events(stream, start):
            yield each
        await trio.sleep(60)


@breaks("one-message-an-event", "request-answered")
class TwoMessagesInOneEvent(Web):
    def event(self, stream: Stream, index: int) -> bytes:
        data = super().event(stream, index)
        text = json.dumps(stream.messages[index])
        return data[:-1] + f"data: {text}\n\n".encode() if stream.messages[index] is not None else data


@breaks("one-message-an-event", "request-answered", revision=MODERN)
class EventsWithoutJson(Web):
    def event(self, stream: Stream, index: int) -> bytes:
        return b"data: hello\n\n" + super().event(stream, index)


@breaks("disconnect-is-not-cancel", "request-answered")
class DisconnectCancels(Web):
    async def events(self, stream: Stream, start: int) -> AsyncIterator[bytes]:
        try:
            async for each in super().events(stream, start):
                yield each
        finally:
            if not stream.ended:
                for life in self.lives.values():
                    for request in life.session.open.values():
                        if request.origin is stream:
                            request.scope.cancel()


# --- resumption -------------------------------------------------------------------------------------------------------


@breaks("event-ids-unique", "message-on-one-stream", "answered-once")
class IgnoresLastEventId(Web):
    def replay(self, life: Life, stream: Stream, start: int) -> Answer:
        return Answer(200, EVENTS, stream=stream)


@breaks("replay-own-stream", "message-on-one-stream", "request-answered")
class ReplaysOtherStreams(Web):
    def replay(self, life: Life, stream: Stream, start: int) -> Answer:
        for other in [*life.streams.values()]:
            if other is not stream:
                stream.messages.extend(other.messages)
        return super().replay(life, stream, start)


@breaks("disconnect-is-not-cancel", "request-answered")
class EndsResumedStreams(Web):
    def replay(self, life: Life, stream: Stream, start: int) -> Answer:
        return Answer(200, EVENTS, stream=Stream(0, ended=True))


@breaks("response-matches-request", "get-stream-no-response")
class LeaksToOtherSessions(Web):
    def choose(self, life: Life, message: Any, about: Request | None) -> Stream:
        for other in self.lives.values():
            if other is not life and "tools" in message.get("result", ()):
                other.alone.put(message)
        return super().choose(life, message, about)


# --- more of both eras ------------------------------------------------------------------------------------------------


@breaks("endpoint-methods", "request-answered")
class RefusesPosts(Web):
    async def post_legacy(self, head: Head, body: bytes, message: Any) -> Answer:
        if isinstance(message, dict) and message.get("method") == "tools/call":
            return Answer(405)
        return await super().post_legacy(head, body, message)


@breaks("retry-before-close")
class ClosesStreamsWithoutRetry(Web):
    async def events(self, stream: Stream, start: int) -> AsyncIterator[bytes]:
        if start == 0 and stream.messages[:1] == [None]:
            stream.reader = None
            yield self.event(stream, 0)
            return
        async for each in super().events(stream, start):
            yield each


@breaks("stream-has-response", "request-answered", revision="2025-06-18")
class StreamsEndEarly(Web):
    def event_id(self, stream: Stream, index: int) -> str | None:
        return None

    def event(self, stream: Stream, index: int) -> bytes:
        message = stream.messages[index]
        return b": nothing\n\n" if "content" in message.get("result", ()) else super().event(stream, index)


class LogsToSubscriptions(Session):
    """A server that logs on any open stream."""

    def log(self, request: Request, level: str, data: Any) -> None:
        for session in self.twin.sessions:
            for listener in session.listening.values():
                session.notify("notifications/message", {"level": level, "data": data}, listener["request"])


@breaks("stream-messages-relate", "log-only-on-request", "listen-id-on-notifications", revision=MODERN)
class LogsOnStreamsOfSubscriptions(Web):
    session = LogsToSubscriptions


@breaks("bad-header-characters-refused", revision=MODERN)
class AcceptsOddCharacters(Web):
    def decoded(self, value: str | None) -> str | None:
        return super().decoded(None if value is None else "".join(each for each in value if " " <= each <= "~"))


@breaks("integer-headers-numeric", revision=MODERN)
class ComparesIntegersAsTexts(Web):
    def agrees(self, header: Any, value: Any) -> bool:
        return self.decoded(header) == str(value)


@breaks("error-status-400", "header-mismatch-refused", "missing-header-refused", revision=MODERN)
class HeaderMismatchWith409(Web):
    def refusal_status(self, code: int) -> int:
        return 409 if code == -32020 else 400


@breaks("incomplete-meta-status", revision=MODERN)
class IncompleteMetaWith422(Web):
    def refusal_status(self, code: int) -> int:
        return 422 if code == -32602 else 400


@breaks("unsupported-version-status", "error-status-400", revision=MODERN)
class UnsupportedVersionWith409(Web):
    def refusal_status(self, code: int) -> int:
        return 409 if code == -32022 else 400


@breaks("legacy-traffic-refused", revision=MODERN)
class RefusesGetWith400(Web):
    session = ModernOnly

    async def handle(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        answer = await super().handle(head, body, nursery)
        return attrs.evolve(answer, status=400) if answer.status == 405 else answer


@breaks("listen-teardown-announced", "listen-ends-with-result", revision=MODERN)
class EndsSubscriptionsInSilence(Web):
    async def events(self, stream: Stream, start: int) -> AsyncIterator[bytes]:
        if stream.messages and stream.messages[0].get("method") == "notifications/subscriptions/acknowledged":
            yield self.event(stream, 0)
            return
        async for each in super().events(stream, start):
            yield each
