"""Servers that break what only the transport shows: statuses, streams that end too early, what belongs to old eras."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import attrs
import trio

from tests.kit.mutants.model import MODERN, Session, Twin, Web, breaks
from tests.kit.mutants.web import EVENTS, Answer, Head, Stream

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@breaks("endpoint-methods")
class RefusesPost(Web):
    async def post(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        return Answer(405) if b'"tools/call"' in body else await super().post(head, body, nursery)


# --- streams ----------------------------------------------------------------------------------------------------------


@breaks("retry-before-close")
class ClosesStreamsEarly(Web):
    async def events(self, stream: Stream, start: int) -> AsyncIterator[bytes]:
        async for each in super().events(stream, start):
            yield each
            if not start and stream.messages[0] is None:
                return


@breaks("stream-has-response", "request-answered")
class StreamsWithoutResponse(Web):
    def event_id(self, stream: Stream, index: int) -> str | None:
        return None

    async def events(self, stream: Stream, start: int) -> AsyncIterator[bytes]:
        async for each in super().events(stream, start):
            if b'"result"' not in each:
                yield each


@breaks("stream-messages-relate", "listen-id-on-notifications", revision=MODERN)
class ChangesOnStreamsOfRequests(Web):
    def event(self, stream: Stream, index: int) -> bytes:
        data = super().event(stream, index)
        return data if b"acknowledged" in data else f"data: {json.dumps(CHANGED)}\n\n".encode() + data


# --- headers and statuses ---------------------------------------------------------------------------------------------


@breaks("bad-header-characters-refused", revision=MODERN)
class AcceptsOddCharacters(Web):
    def decoded(self, value: str | None) -> str | None:
        found = super().decoded(value)
        return value.encode("latin-1").decode("ascii", "ignore") if found is None and value is not None else found


@breaks("integer-headers-numeric", revision=MODERN)
class ComparesIntegersAsText(Web):
    def agrees(self, header: str | None, value: Any) -> bool:
        return self.decoded(header) == str(value)


class Statuses(Web):
    """Sends other statuses with errors."""

    codes: frozenset[int] = frozenset()

    def refuse(self, status: int, code: int, message: str, request_id: Any = None, data: Any = None) -> Answer:
        refusal = super().refuse(status, code, message, request_id, data)
        return attrs.evolve(refusal, status=200) if code in self.codes else refusal


@breaks(
    "error-status-400",
    "header-mismatch-refused",
    "missing-header-refused",
    "bad-header-characters-refused",
    revision=MODERN,
)
class MismatchesWith200(Statuses):
    codes = frozenset({-32020})


@breaks("incomplete-meta-status", revision=MODERN)
class IncompleteMetaWith200(Statuses):
    codes = frozenset({-32602})


@breaks(
    "unsupported-version-status",
    "error-status-400",
    "notification-accepted-202",
    "notification-refused-with-error",
    revision=MODERN,
)
class UnknownVersionsWith200(Statuses):
    codes = frozenset({-32022})


# --- old eras ---------------------------------------------------------------------------------------------------------


class ModernSession(Session):
    supported = (MODERN,)


@breaks("legacy-traffic-refused", revision=MODERN)
class KeepsGet(Web):
    def __init__(self, twin: Twin, nursery: trio.Nursery) -> None:
        super().__init__(twin, nursery)
        twin.session = ModernSession

    async def handle(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        if head.method == "GET":
            return Answer(200, EVENTS, stream=Stream(0, ended=True))
        return await super().handle(head, body, nursery)
