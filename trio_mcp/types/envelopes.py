"""JSON-RPC envelopes as models, for programs that want them; the library itself uses `trio_mcp.jsonrpc.messages`.

The envelopes come first, then the errors that the schemas define one by one, then the responses by method, as in the
schema of 2026-07-28.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from trio_mcp.types._base import WireModel, always
from trio_mcp.types.bases import Result
from trio_mcp.types.capabilities import ClientCapabilities
from trio_mcp.types.common import RequestId
from trio_mcp.types.completion import CompleteResult
from trio_mcp.types.elicitation import ElicitRequestURLParams
from trio_mcp.types.input_required import INPUT_REQUIRED, InputRequiredResult
from trio_mcp.types.lifecycle import DiscoverResult
from trio_mcp.types.prompts import GetPromptResult, ListPromptsResult
from trio_mcp.types.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceResult
from trio_mcp.types.subscriptions import SubscriptionsListenResult
from trio_mcp.types.tool_messages import CallToolResult, ListToolsResult

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
    """The error object of a JSON-RPC response."""

    # The codes are those of `trio_mcp.types.error_codes`, or an application's own.
    code: int
    message: str
    # The data may be any JSON value. Null is one, so a null differs from an absent field.
    data: Any = always(null=True)


# The official SDK uses this name.
ErrorData = Error


class JSONRPCRequest(WireModel):
    """A JSON-RPC request."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    method: str
    params: dict[str, Any] | None = None


class JSONRPCNotification(WireModel):
    """A JSON-RPC notification."""

    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: dict[str, Any] | None = None


class _ResultEnvelope(WireModel):
    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: Any


class JSONRPCResultResponse(_ResultEnvelope):
    """The JSON-RPC response to a request that succeeded."""

    result: Result


class JSONRPCErrorResponse(WireModel):
    """The JSON-RPC response to a request that failed.

    If the request's id could not be read, the id is absent (since 2025-11-25) or null (JSON-RPC 2.0, section 5).
    """

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId | None = always(required=True, optional_in=("2025-11-25", "2026-07-28"), null=True)
    error: Error


# The schemas until 2025-06-18 use this name.
JSONRPCError = JSONRPCErrorResponse

JSONRPCResponse = JSONRPCResultResponse | JSONRPCErrorResponse
JSONRPCMessage = JSONRPCRequest | JSONRPCNotification | JSONRPCResultResponse | JSONRPCErrorResponse

# Only 2025-03-26 has batches; 2025-06-18 removed them.
JSONRPCBatchRequest = list[JSONRPCRequest | JSONRPCNotification]
JSONRPCBatchResponse = list[JSONRPCResultResponse | JSONRPCErrorResponse]


# The errors of JSON-RPC 2.0, section 5.1, as the schema of 2026-07-28 defines them.
class ParseError(Error, since="2026-07-28"):
    """The message is not valid JSON."""

    code: Literal[-32700] = -32700


class InvalidRequestError(Error, since="2026-07-28"):
    """The message is not a valid JSON-RPC message."""

    code: Literal[-32600] = -32600


class MethodNotFoundError(Error, since="2026-07-28"):
    """The receiver does not have the method, or not in this revision."""

    code: Literal[-32601] = -32601


class InvalidParamsError(Error, since="2026-07-28"):
    """The parameters don't fit the method, or name something that does not exist."""

    code: Literal[-32602] = -32602


class InternalError(Error, since="2026-07-28"):
    """The receiver failed to process the request."""

    code: Literal[-32603] = -32603


# MCP's own errors, each as an object and as a whole response.
class HeaderMismatchErrorObject(Error, since="2026-07-28"):
    """An HTTP header contradicts the body."""

    code: Literal[-32020] = -32020


class HeaderMismatchError(JSONRPCErrorResponse, since="2026-07-28"):
    """The response to a request whose HTTP headers contradict its body."""

    error: HeaderMismatchErrorObject


class MissingRequiredClientCapabilityErrorData(WireModel, since="2026-07-28"):
    """The capabilities that the client would have to declare."""

    required_capabilities: ClientCapabilities


class MissingRequiredClientCapabilityErrorObject(Error, since="2026-07-28"):
    """The request needs a capability that the client did not declare."""

    code: Literal[-32021] = -32021
    data: MissingRequiredClientCapabilityErrorData


class MissingRequiredClientCapabilityError(JSONRPCErrorResponse, since="2026-07-28"):
    """The response to a request that needs a capability that the client did not declare."""

    error: MissingRequiredClientCapabilityErrorObject


class UnsupportedProtocolVersionErrorData(WireModel, since="2026-07-28"):
    """The revision that the client requested, and those that the server serves."""

    requested: str
    supported: list[str]


class UnsupportedProtocolVersionErrorObject(Error, since="2026-07-28"):
    """The server does not serve the revision of the request."""

    code: Literal[-32022] = -32022
    data: UnsupportedProtocolVersionErrorData


class UnsupportedProtocolVersionError(JSONRPCErrorResponse, since="2026-07-28"):
    """The response to a request in a revision that the server does not serve."""

    error: UnsupportedProtocolVersionErrorObject


class ElicitationRequiredErrorData(WireModel, only="2025-11-25"):
    """The URLs that the user has to visit first."""

    elicitations: list[ElicitRequestURLParams]


class URLElicitationRequiredErrorObject(Error, only="2025-11-25"):
    """The user has to visit URLs before the request can be served."""

    code: Literal[-32042] = -32042
    data: ElicitationRequiredErrorData


class URLElicitationRequiredError(JSONRPCErrorResponse, only="2025-11-25"):
    """The response to a request that can't be served until the user has visited some URLs."""

    error: URLElicitationRequiredErrorObject


# Tells apart the results of methods that may ask for input. It is a function, because an absent `resultType` means
# "complete".
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
