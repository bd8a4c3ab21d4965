"""`SizeLimit`: a middleware that refuses results that are too large."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
from pydantic_core import to_json

from trio_mcp._checks import check_count, validator
from trio_mcp.errors import McpError
from trio_mcp.server.context import Context
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["SizeLimit"]


@attrs.frozen
class SizeLimit:
    """Refuses results that are too large: a tool's result becomes an error for the model, any other an error response.

    A result is not cut: half of a JSON text or of an image is worse than none, and a model can ask for less.

    Attributes:
        max_bytes: The maximum size of a result, in bytes of JSON.
    """

    max_bytes: int = attrs.field(default=1_000_000, validator=validator(check_count))

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        result = await call_next()
        size = len(to_json(result))
        if size <= self.max_bytes:
            return result
        text = f"the result has {size} bytes, more than the limit of {self.max_bytes}; ask for less"
        if context.method != "tools/call":
            raise McpError(INTERNAL_ERROR, text)
        return {"content": [{"type": "text", "text": text}], "isError": True}
