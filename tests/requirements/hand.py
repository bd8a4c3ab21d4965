"""A client worked by hand, which may say what no library would, and sees all that the server says."""

from __future__ import annotations

from typing import Any

import attrs

from tests.session.harness import Wire
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, RequestId, Response
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS

__all__ = ["Hand"]

ME = {"name": "hand", "version": "1"}


@attrs.define
class Hand:
    """The client's end of a link.

    Attributes:
        wire: The link.
        revision: The one it speaks.
        capabilities: The client's.
        heard: The notifications that came while it waited for something else, in order.
        asked: The ids of its requests.
        answered: The ids of the answers that have come, those that could not be read among them as None.
    """

    wire: Wire
    revision: str
    capabilities: dict[str, Any]
    heard: list[Notification] = attrs.Factory(list)
    asked: set[RequestId] = attrs.Factory(set)
    answered: set[RequestId | None] = attrs.Factory(set)
    _answers: dict[Any, Response | ErrorResponse] = attrs.Factory(dict)
    _last: int = 0

    @property
    def fields(self) -> dict[str, Any]:
        """What each request says in ``_meta``."""
        if self.revision in LEGACY_REVISIONS:
            return {}
        return {
            meta.PROTOCOL_VERSION: self.revision,
            meta.CLIENT_INFO: ME,
            meta.CLIENT_CAPABILITIES: self.capabilities,
        }

    def handshake(self) -> dict[str, Any]:
        """The parameters of initialize."""
        return {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": ME}

    async def start(
        self, method: str, params: dict[str, Any] | None = None, request_id: Any = None, **more: Any
    ) -> RequestId:
        """Send a request; ``more`` goes into its ``_meta``, beside the era's fields. Gives its id."""
        if request_id is None:
            self._last += 1
            request_id = f"hand-{self._last}"
        given = dict(params or {})
        fields = {**self.fields, **more, **given.pop("_meta", {})}
        self.asked.add(request_id)
        await self.raw(Request(request_id, method, {**given, "_meta": fields} if fields else params))
        return request_id

    async def raw(self, message: Any) -> None:
        """Send a message as it is."""
        await self.wire.send(message)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self.wire.send(Notification(method, params))

    async def cancel(self, request_id: RequestId, **more: Any) -> None:
        """Say that nobody wants the answer any more."""
        await self.notify("notifications/cancelled", {"requestId": request_id, **more})

    async def answer(self, request_id: RequestId | None) -> Response | ErrorResponse:
        """The answer to a request; what else comes before it is kept."""
        while request_id not in self._answers:
            await self._read()
        return self._answers.pop(request_id)

    async def hear(self, method: str) -> dict[str, Any]:
        """The parameters of the next notification of a kind, which is taken off what was heard."""
        while True:
            for index, found in enumerate(self.heard):
                if found.method == method:
                    return self.heard.pop(index).params or {}
            await self._read()

    async def _read(self) -> None:
        message = await self.wire.receive()
        if isinstance(message, Notification):
            self.heard.append(message)
        else:
            assert isinstance(message, (Response, ErrorResponse)), message
            key = message.id
            assert key not in self._answers, f"a second answer to {key!r}"
            self._answers[key] = message
            self.answered.add(key)

    async def result(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Ask, and get a result."""
        answer = await self.answer(await self.start(method, params, **more))
        assert isinstance(answer, Response), answer
        return answer.result

    async def error(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> ErrorData:
        """Ask, and get an error."""
        answer = await self.answer(await self.start(method, params, **more))
        assert isinstance(answer, ErrorResponse), answer
        return answer.error

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Call a tool, and get a result."""
        return await self.result("tools/call", {"name": name, "arguments": arguments or {}}, **more)

    def heard_of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of what was heard of a kind."""
        return [found.params or {} for found in self.heard if found.method == method]
