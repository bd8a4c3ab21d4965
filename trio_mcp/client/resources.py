"""Resources, from the client's side (`server/resources`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import trio

from trio_mcp.client.answers.input_rounds import INPUT_REQUIRED, InputRounds
from trio_mcp.client.listing import Listing, every, request_meta
from trio_mcp.session.requests import USE_SESSION, Limit
from trio_mcp.types.input_required import InputRequiredResult
from trio_mcp.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)

__all__ = ["ResourceMethods"]


class ResourceMethods(Listing, InputRounds):
    """The part of `Client` that lists, reads and watches resources."""

    async def list_resources(self, cursor: str | None = None, *, timeout: Limit = USE_SESSION) -> ListResourcesResult:
        """One page of the server's resources.

        Args:
            cursor: The ``next_cursor`` of the page before; None for the first page.
            timeout: Seconds to wait.

        Raises:
            CapabilityError: The server offers no resources.
            McpError: The server refused, for example an invalid cursor.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        return await self._one_page(ListResourcesResult, "resources/list", cursor, timeout)

    def iter_resources(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[Resource]:
        """Every resource, page after page: ``async for resource in client.iter_resources()``.

        Args:
            timeout: Seconds to wait for each page.

        A server whose pages never end is given up after `MAX_PAGES` with a `RemoteProtocolError`; errors otherwise as
        in `list_resources`.
        """
        return every(
            lambda cursor: self.list_resources(cursor, timeout=timeout), lambda page: page.resources, "resources"
        )

    async def list_resource_templates(
        self, cursor: str | None = None, *, timeout: Limit = USE_SESSION
    ) -> ListResourceTemplatesResult:
        """One page of the server's resource templates: URI templates (RFC 6570) that name families of resources.

        Arguments, errors and cancellation as in `list_resources`.
        """
        return await self._one_page(ListResourceTemplatesResult, "resources/templates/list", cursor, timeout)

    def iter_resource_templates(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[ResourceTemplate]:
        """Every resource template, page after page. Arguments and errors as in `iter_resources`."""
        return every(
            lambda cursor: self.list_resource_templates(cursor, timeout=timeout),
            lambda page: page.resource_templates,
            "resource templates",
        )

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        meta: Mapping[str, Any] | None = None,
    ) -> ReadResourceResult:
        """Read a resource. If the server asks for input, the callbacks of the `Client` give it.

        Args:
            uri: Its URI: one from a list, or made from a template.
            timeout: Seconds without an answer.
            total_timeout: Seconds whatever happens.
            meta: More entries for the request's ``_meta``, as in `call_tool`.

        Returns:
            Its ``contents``: `TextResourceContents` with a ``text``, `BlobResourceContents` with a ``blob`` in Base64;
            several where the URI names a group.

        Raises:
            TypeError: The URI is no string.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            CapabilityError: The server offers no resources.
            McpError: The server refused, for example because there is no such resource.
            InputError: The server asks for input, and the callback gave none (modern era).
            RemoteProtocolError: The result is malformed, or asks for input that it may not ask for.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        params = _about(uri)
        if meta is not None:
            params["_meta"] = request_meta(self, meta, f"the request for {uri!r}")
        started = trio.current_time()
        limits: dict[str, Any] = {"timeout": timeout, "total_timeout": total_timeout}
        if self._cache is None or meta is not None:  # what the entries of `meta` do to the result, nobody knows
            result = await self.request("resources/read", params, **limits)
        else:
            result = await self._cached(self._cache, "resources/read", uri, params, **limits)
        if result.get("resultType") == INPUT_REQUIRED:
            result = await self._finish_rounds("resources/read", params, result, started, **limits)
        return self._validated(ReadResourceResult, "resources/read", result)

    async def read_resource_once(
        self,
        uri: str,
        *,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        meta: Mapping[str, Any] | None = None,
    ) -> ReadResourceResult | InputRequiredResult:
        """Read a resource for one round of input, by hand: to `read_resource` as `call_tool_once` is to `call_tool`."""
        limits: dict[str, Any] = {"timeout": timeout, "total_timeout": total_timeout}
        params = _about(uri)
        if meta is not None:
            params["_meta"] = request_meta(self, meta, f"the request for {uri!r}")
        _, answer = await self._once(
            "resources/read", ReadResourceResult, params, input_responses, request_state, **limits
        )
        return answer

    async def subscribe_resource(self, uri: str, *, timeout: Limit = USE_SESSION) -> None:
        """Ask to be told when a resource changes (legacy era only).

        The server then sends ``notifications/resources/updated``, which ``on_message`` of the `Client` gets.

        Args:
            uri: Its URI.
            timeout: Seconds to wait.

        Raises:
            TypeError: The URI is no string.
            LocalProtocolError: The revision has no such request; 2026-07-28 and later have none.
            CapabilityError: The server takes no subscriptions.
            McpError: The server refused.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        await self.request("resources/subscribe", _about(uri), timeout=timeout)

    async def unsubscribe_resource(self, uri: str, *, timeout: Limit = USE_SESSION) -> None:
        """Ask to be told no more. Arguments, errors and cancellation as in `subscribe_resource`."""
        await self.request("resources/unsubscribe", _about(uri), timeout=timeout)


def _about(uri: str) -> dict[str, Any]:
    if not isinstance(uri, str):
        raise TypeError(f"a URI must be a string, got {uri!r}")
    return {"uri": uri}
