"""Errors that the schemas describe one by one: an :class:`Error` with its code, or a whole response with it."""

from typing import Literal

from trio_mcp.types._base import WireModel
from trio_mcp.types.capabilities import ClientCapabilities
from trio_mcp.types.elicitation import ElicitRequestURLParams
from trio_mcp.types.jsonrpc import Error, JSONRPCErrorResponse

__all__ = [
    "ElicitationRequiredErrorData",
    "HeaderMismatchError",
    "HeaderMismatchErrorObject",
    "InternalError",
    "InvalidParamsError",
    "InvalidRequestError",
    "MethodNotFoundError",
    "MissingRequiredClientCapabilityError",
    "MissingRequiredClientCapabilityErrorData",
    "MissingRequiredClientCapabilityErrorObject",
    "ParseError",
    "URLElicitationRequiredError",
    "URLElicitationRequiredErrorObject",
    "UnsupportedProtocolVersionError",
    "UnsupportedProtocolVersionErrorData",
    "UnsupportedProtocolVersionErrorObject",
]


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
