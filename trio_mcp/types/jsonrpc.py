"""The JSON-RPC 2.0 constructs as models, for completeness; the fast envelopes live a floor above."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, always
from trio_mcp.types.common import RequestId
from trio_mcp.types.messages import Result

__all__ = [
    "Error",
    "ErrorData",
    "JSONRPCBatchRequest",
    "JSONRPCBatchResponse",
    "JSONRPCError",
    "JSONRPCErrorResponse",
    "JSONRPCMessage",
    "JSONRPCNotification",
    "JSONRPCRequest",
    "JSONRPCResponse",
    "JSONRPCResultResponse",
]


class Error(WireModel):
    """What went wrong, by code."""

    code: int
    message: str
    data: Any = always(null=True)


# Its name in the official SDK
ErrorData = Error


class JSONRPCRequest(WireModel):
    """A request on the wire."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    method: str
    params: dict[str, Any] | None = None


class JSONRPCNotification(WireModel):
    """A notification on the wire."""

    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: dict[str, Any] | None = None


class JSONRPCResultResponse(WireModel):
    """The answer to a request that succeeded."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: Result


class JSONRPCErrorResponse(WireModel):
    """The answer to a request that failed.

    Without an id if the request's could not be read: absent since 2025-11-25, null in JSON-RPC 2.0, section 5.
    """

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId | None = always(required=True, optional_in=("2025-11-25", "2026-07-28"), null=True)
    error: Error


# Its name until 2025-06-18
JSONRPCError = JSONRPCErrorResponse

JSONRPCResponse = JSONRPCResultResponse | JSONRPCErrorResponse
JSONRPCMessage = JSONRPCRequest | JSONRPCNotification | JSONRPCResultResponse | JSONRPCErrorResponse

# 2025-03-26 only
JSONRPCBatchRequest = list[JSONRPCRequest | JSONRPCNotification]
JSONRPCBatchResponse = list[JSONRPCResultResponse | JSONRPCErrorResponse]
