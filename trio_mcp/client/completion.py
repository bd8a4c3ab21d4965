"""Completion of arguments, from the client's side (`server/utilities/completion`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trio_mcp.client.connection import ClientConnection
from trio_mcp.client.listing import request_meta, validated
from trio_mcp.client.prompts import strings
from trio_mcp.eras.rules import rules_of
from trio_mcp.session.requests import USE_SESSION, Limit
from trio_mcp.types.completion import CompleteResult, PromptReference, ResourceTemplateReference

__all__ = ["CompletionMethods"]


class CompletionMethods(ClientConnection):
    """The part of `Client` that asks for suggestions."""

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str = "",
        *,
        context: Mapping[str, str] | None = None,
        timeout: Limit = USE_SESSION,
        meta: Mapping[str, Any] | None = None,
    ) -> CompleteResult:
        """Ask what an argument of a prompt, or a variable of a resource template, could be.

        ``await client.complete(PromptReference(name="review"), "language", "py")``

        Args:
            ref: Which prompt, by its name, or which template, by its URI template.
            argument: The name of the argument.
            value: What has been typed of it.
            context: Other arguments that are known already. Before 2025-06-18 there is no such thing: a server of an
                older revision is not told.
            timeout: Seconds to wait.
            meta: More entries for the request's ``_meta``, as in `Client.call_tool`.

        Returns:
            Its ``completion`` has at most 100 ``values``, the best first, and perhaps says how many there are
            (``total``) or that there are more (``has_more``).

        Raises:
            TypeError: An argument is not what it should be.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            CapabilityError: The server completes nothing.
            McpError: The server refused, for example because there is no such prompt.
            RemoteProtocolError: The result is malformed.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if not isinstance(ref, (PromptReference, ResourceTemplateReference)):
            raise TypeError(f"ref must be a PromptReference or a ResourceTemplateReference, got {type(ref).__name__}")
        if not isinstance(argument, str) or not isinstance(value, str):
            raise TypeError(f"the argument's name and value must be strings, got {argument!r}, {value!r}")
        params: dict[str, Any] = {"ref": ref.to_wire(), "argument": {"name": argument, "value": value}}
        if context is not None:
            known = strings(context, "context")
            if rules_of(self.protocol_version).completion_context:
                params["context"] = {"arguments": known}
        if meta is not None:
            params["_meta"] = request_meta(self, meta, "the request for completion")
        result = await self.request("completion/complete", params, timeout=timeout)
        return validated(CompleteResult, "completion/complete", result)
