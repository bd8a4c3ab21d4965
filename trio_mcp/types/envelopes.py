"""JSON-RPC envelopes as models, for completeness: the library itself works with those of `trio_mcp.jsonrpc.messages`.

First the envelopes, then the errors that the schemas describe one by one, then the responses by method, as the schema
of 2026-07-28 spells them out.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from trio_mcp.types._base import WireModel, always
from trio_mcp.types.capabilities import ClientCapabilities
from trio_mcp.types.common import RequestId, Result
from trio_mcp.types.completion import CompleteResult
from trio_mcp.types.elicitation import ElicitRequestURLParams
from trio_mcp.types.input_required import INPUT_REQUIRED, InputRequiredResult
from trio_mcp.types.lifecycle import DiscoverResult
from trio_mcp.types.prompts import GetPromptResult, ListPromptsResult
from trio_mcp.types.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceResult
from trio_mcp.types.subscriptions import SubscriptionsListenResult
from trio_mcp.types.tools import CallToolResult, ListToolsResult

__all__ = [
    "CallToolResultResponse",
    "CompleteResultResponse",
    "DiscoverResultResponse",
    "ElicitationRequiredErrorData",
    "Error",
    "ErrorData",
    "GetPromptResultResponse",
    "HeaderMismatchError",
    "HeaderMismatchErrorObject",
    "InternalError",
    "InvalidParamsError",
    "InvalidRequestError",
    "JSONRPCBatchRequest",
    "JSONRPCBatchResponse",
    "JSONRPCError",
    "JSONRPCErrorResponse",
    "JSONRPCMessage",
    "JSONRPCNotification",
    "JSONRPCRequest",
    "JSONRPCResponse",
    "JSONRPCResultResponse",
    "ListPromptsResultResponse",
    "ListResourceTemplatesResultResponse",
    "ListResourcesResultResponse",
    "ListToolsResultResponse",
    "MethodNotFoundError",
    "MissingRequiredClientCapabilityError",
    "MissingRequiredClientCapabilityErrorData",
    "MissingRequiredClientCapabilityErrorObject",
    "ParseError",
    "ReadResourceResultResponse",
    "SubscriptionsListenResultResponse",
    "URLElicitationRequiredError",
    "URLElicitationRequiredErrorObject",
    "UnsupportedProtocolVersionError",
    "UnsupportedProtocolVersionErrorData",
    "UnsupportedProtocolVersionErrorObject",
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


class _ResultEnvelope(WireModel):
    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: Any


class JSONRPCResultResponse(_ResultEnvelope):
    """The answer to a request that succeeded."""

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


class ParseError(Error, since="2026-07-28"):
    """What was received is no JSON."""

    code: Literal[-32700] = -32700


class InvalidRequestError(Error, since="2026-07-28"):
    """What was received is no JSON-RPC message."""

    code: Literal[-32600] = -32600


class MethodNotFoundError(Error, since="2026-07-28"):
    """The receiver does not have this method, or not in this revision."""

    code: Literal[-32601] = -32601


class InvalidParamsError(Error, since="2026-07-28"):
    """The parameters do not fit the method, or name something that does not exist."""

    code: Literal[-32602] = -32602


class InternalError(Error, since="2026-07-28"):
    """The receiver failed."""

    code: Literal[-32603] = -32603


class HeaderMismatchErrorObject(Error, since="2026-07-28"):
    """An HTTP header says something else than the body."""

    code: Literal[-32020] = -32020


class HeaderMismatchError(JSONRPCErrorResponse, since="2026-07-28"):
    """The response to a request whose HTTP headers do not match its body."""

    error: HeaderMismatchErrorObject


class MissingRequiredClientCapabilityErrorData(WireModel, since="2026-07-28"):
    """The capabilities the client would have to have."""

    required_capabilities: ClientCapabilities


class MissingRequiredClientCapabilityErrorObject(Error, since="2026-07-28"):
    """The request needs a capability that the client did not declare."""

    code: Literal[-32021] = -32021
    data: MissingRequiredClientCapabilityErrorData


class MissingRequiredClientCapabilityError(JSONRPCErrorResponse, since="2026-07-28"):
    """The response to a request that needs a capability the client did not declare."""

    error: MissingRequiredClientCapabilityErrorObject


class UnsupportedProtocolVersionErrorData(WireModel, since="2026-07-28"):
    """The revision the client asked for, and those the server has."""

    requested: str
    supported: list[str]


class UnsupportedProtocolVersionErrorObject(Error, since="2026-07-28"):
    """The server does not speak the revision of this request."""

    code: Literal[-32022] = -32022
    data: UnsupportedProtocolVersionErrorData


class UnsupportedProtocolVersionError(JSONRPCErrorResponse, since="2026-07-28"):
    """The response to a request of a revision that the server does not speak."""

    error: UnsupportedProtocolVersionErrorObject


class ElicitationRequiredErrorData(WireModel, only="2025-11-25"):
    """The pages the user has to visit first."""

    elicitations: list[ElicitRequestURLParams]


class URLElicitationRequiredErrorObject(Error, only="2025-11-25"):
    """The user has to visit pages first."""

    code: Literal[-32042] = -32042
    data: ElicitationRequiredErrorData


class URLElicitationRequiredError(JSONRPCErrorResponse, only="2025-11-25"):
    """The response to a request that cannot be served before the user has visited some pages."""

    error: URLElicitationRequiredErrorObject


def _kind(result: Any) -> str:
    asks = isinstance(result, InputRequiredResult) or (
        isinstance(result, dict) and result.get("resultType") == INPUT_REQUIRED
    )
    return "asks" if asks else "answers"


_Asks = Annotated[InputRequiredResult, Tag("asks")]


class CallToolResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to tools/call."""

    result: Annotated[_Asks | Annotated[CallToolResult, Tag("answers")], Discriminator(_kind)]


class CompleteResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to completion/complete."""

    result: CompleteResult


class DiscoverResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to server/discover."""

    result: DiscoverResult


class GetPromptResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to prompts/get."""

    result: Annotated[_Asks | Annotated[GetPromptResult, Tag("answers")], Discriminator(_kind)]


class ListPromptsResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to prompts/list."""

    result: ListPromptsResult


class ListResourceTemplatesResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to resources/templates/list."""

    result: ListResourceTemplatesResult


class ListResourcesResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to resources/list."""

    result: ListResourcesResult


class ListToolsResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to tools/list."""

    result: ListToolsResult


class ReadResourceResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to resources/read."""

    result: Annotated[_Asks | Annotated[ReadResourceResult, Tag("answers")], Discriminator(_kind)]


class SubscriptionsListenResultResponse(_ResultEnvelope, since="2026-07-28"):
    """The response to subscriptions/listen."""

    result: SubscriptionsListenResult
