"""Remember as much of a session as is needed to repeat its calls and to restore it on another link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger
from trio_mcp.eras.capabilities import declares
from trio_mcp.eras.client_negotiation import (
    ServerDeclaration,
    modern_choice,
    read_discover_result,
    read_initialize_result,
)
from trio_mcp.errors import NegotiationError, TransportError
from trio_mcp.jsonrpc.messages import Notification, Request, RequestId, SessionMessage
from trio_mcp.types import meta
from trio_mcp.types.methods import facts_of

__all__ = ["ACKNOWLEDGED", "LEARNED", "UNASKED", "Remembered"]

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"

# Repeating one of these methods only sets what is set already, or opens a session that nothing else has used.
_HARMLESS: Final = frozenset({"initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Methods that may be repeated on another link, in addition to those that the method table marks as repeatable."""

LEARNED: Final = frozenset({*_HARMLESS, "server/discover", "subscriptions/listen", "tools/list"})
"""Methods whose responses contain something to remember about the session."""

# For each notification, the capability that declares it, and the key that selects it in the filter of a subscription.
_LISTS: Final = {
    "notifications/tools/list_changed": ("tools.listChanged", "toolsListChanged"),
    "notifications/prompts/list_changed": ("prompts.listChanged", "promptsListChanged"),
    "notifications/resources/list_changed": ("resources.listChanged", "resourcesListChanged"),
}

UNASKED: Final = frozenset({*_LISTS, UPDATED, "ping"})
"""The messages that a server may send although nothing of the client's reaches it any more."""

# Limits on what is remembered; all are arbitrary choices. If a subscription does not fit, it is not restored; if the
# name of a tool does not fit, calls of that tool are not repeated.
MAX_TOOLS = 10_000
MAX_URIS = 10_000
MAX_BYTES = 1024 * 1024
"""The greatest total length of the names of tools. The same limit applies separately to the URIs."""


class _Names:
    """A set of strings, bounded in number and total length."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = 0
        self._held: dict[str, None] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._held))

    def add(self, name: str) -> bool:
        """Add a name, and return whether there was room."""
        if name not in self._held:
            if len(self._held) >= self._most or self._length + len(name) > MAX_BYTES:
                return False
            self._held[name] = None
            self._length += len(name)
        return True

    def discard(self, name: str) -> None:
        if name in self._held:
            del self._held[name]
            self._length -= len(name)


class Remembered:
    """The outcome of a session's negotiation, and the settings that the session has asked the server to keep.

    Attributes:
        server: The declaration of the server; None before the session is open.
        modern: Whether the session is of the modern era.
    """

    def __init__(self) -> None:
        self.server: ServerDeclaration | None = None
        self.modern = False
        self._opening: dict[str, Any] = {}
        self._level: Any = None
        self._uris = _Names(MAX_URIS)
        self._repeatable_tools = _Names(MAX_TOOLS)
        # The changes that the server has agreed to announce to each open subscription of the modern era, by request id.
        self._covered: dict[RequestId, dict[str, Any]] = {}

    # --- repeating -------------------------------------------------------------------------------------------------

    def may_repeat(self, item: SessionMessage) -> bool:
        """Return whether a request may be sent again although the server may already have carried it out."""
        request = item.message
        assert isinstance(request, Request)
        method = request.method
        if item.retry or facts_of(method).repeatable or method in _HARMLESS:
            return True
        # Calls of a tool that the session has never listed are not repeated: according to the schema, the hints that
        # permit a repetition default to false.
        return method == "tools/call" and (request.params or {}).get("name") in self._repeatable_tools

    # --- learning --------------------------------------------------------------------------------------------------

    def learn(self, request: Request, result: dict[str, Any]) -> None:
        """Learn from the result of a request whose method is in `LEARNED`."""
        params = request.params or {}
        match request.method:
            case "initialize":
                try:
                    self._open(read_initialize_result(result), params, modern=False)
                except NegotiationError:
                    pass  # the session reads the same result, and raises this error itself
            case "server/discover":
                found = self.discovered(result)
                if found is not None:
                    self._open(found, params, modern=True)
            case "tools/list":
                self._learn_tools(result.get("tools"))
            case "logging/setLevel":
                self._level = params.get("level")
            case "resources/subscribe":
                if not self._uris.add(str(params.get("uri"))):
                    logger.warning("too many subscriptions to restore them all after a failure")
            case "resources/unsubscribe":
                self._uris.discard(str(params.get("uri")))

    def _open(self, server: ServerDeclaration, params: dict[str, Any], *, modern: bool) -> None:
        self.server, self._opening, self.modern = server, params, modern

    def discovered(self, result: dict[str, Any]) -> ServerDeclaration | None:
        """Read the result of ``server/discover``; return None if it offers no revision of the modern era."""
        answer = read_discover_result(result)
        chosen = None if answer is None else modern_choice(answer[0])
        return None if answer is None or chosen is None else attrs.evolve(answer[1], revision=chosen)

    def _learn_tools(self, tools: object) -> None:
        # The list may be one page of several, so what was learned before about other tools is kept.
        for tool in tools if isinstance(tools, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            hints = tool.get("annotations")
            # The test is `is True` because nothing has validated these values, and a string, for example, must not
            # permit a repetition.
            harmless = isinstance(hints, dict) and (
                hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
            )
            if harmless:
                self._repeatable_tools.add(name)
            else:
                self._repeatable_tools.discard(name)

    # --- opening the same session again ------------------------------------------------------------------------------

    def opening(self) -> tuple[str, dict[str, Any]]:
        """Return the method and parameters of the request that opens the session on another link.

        In the modern era, the same request checks that a link works.
        """
        assert self.server is not None
        if self.modern:
            return "server/discover", self._opening
        # The revision is the one that was agreed on; the session may have proposed another one first.
        return "initialize", {**self._opening, "protocolVersion": self.server.revision}

    def check_same(self, result: dict[str, Any]) -> None:
        """Check that the result of the request of `opening` comes from the same server.

        Raises:
            NegotiationError: If the result is not valid for that request, or has another revision.
            TransportError: If another server has responded.
        """
        assert self.server is not None
        there = self.discovered(result) if self.modern else read_initialize_result(result)
        if there is None or there.revision != self.server.revision:
            spoken = "no modern revision" if there is None else repr(there.revision)
            raise NegotiationError(f"its server speaks {spoken}, but the session speaks {self.server.revision!r}")
        ours, theirs = self.server.info or {}, there.info or {}
        # Only the names are compared: replicas may be upgraded one after another, so a different version is normal.
        if ours.get("name") != theirs.get("name"):
            raise TransportError(
                f"it leads to another server: {_shown(theirs)} instead of {_shown(ours)};"
                " the ways of one list must lead to the same server"
            )
        if ours != theirs:
            logger.warning("the server has changed: it was %s and is %s now", _shown(ours), _shown(theirs))

    def restoring(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the requests that restore the settings that the server had been asked to keep."""
        level = [] if self._level is None else [("logging/setLevel", {"level": self._level})]
        return [*level, *(("resources/subscribe", {"uri": uri}) for uri in self._uris)]

    # --- changes that may have been missed ---------------------------------------------------------------------------

    def missed(self) -> list[Notification]:
        """Return the changes that the server of a legacy session may have announced while the session had no link."""
        # In the modern era, changes are announced only to subscriptions, and `acknowledged` handles each of them.
        if self.server is None or self.modern:
            return []
        # A server that has not declared these announcements sends none, so none can have been missed.
        lists = [each for each, (path, _) in _LISTS.items() if declares(self.server.capabilities, path)]
        return [*map(Notification, lists), *(Notification(UPDATED, {"uri": uri}) for uri in self._uris)]

    def acknowledged(self, notification: Notification) -> list[Notification] | None:
        """Record that the server has agreed to a subscription of the modern era.

        Returns:
            None if the notification must be passed to the session. Otherwise the session already knows of the
            subscription, and the list has the notifications of changes that it may have missed in between.
        """
        params = notification.params or {}
        about, offered = params.get("_meta"), params.get("notifications")
        key = about.get(meta.SUBSCRIPTION_ID) if isinstance(about, dict) else None
        # The session's ids are integers. `isinstance` would accept True as well, which is equal to 1 as a key.
        if type(key) is not int or not isinstance(offered, dict):
            return None  # the notification is malformed, which the session will report
        covered = self._covered.get(key)
        # The session is waiting for the first acknowledgement. A second one belongs to a repeated request, of which the
        # session knows nothing.
        if covered is None:
            self._covered[key] = offered
            return None
        stamp = {meta.SUBSCRIPTION_ID: key}
        lists = [each for each, (_, flag) in _LISTS.items() if covered.get(flag) and offered.get(flag)]
        uris = covered.get("resourceSubscriptions")
        return [
            *(Notification(each, {"_meta": stamp}) for each in lists),
            *(Notification(UPDATED, {"uri": uri, "_meta": stamp}) for uri in (uris if isinstance(uris, list) else ())),
        ]

    def forget(self, request_id: RequestId) -> None:
        """Forget a subscription of the modern era, which has ended."""
        self._covered.pop(request_id, None)


def _shown(info: dict[str, Any]) -> str:
    # The texts are shortened, because the server chose them and they may have any length.
    return f"{str(info.get('name', 'a server without a name'))[:100]!r} {str(info.get('version', ''))[:100]}".rstrip()
