"""The JSON-RPC error codes of the protocol (2026-07-28 basic, "Error codes").

The module has only constants, so that importing them loads no models.
"""

from typing import Final

__all__ = [
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_REQUIRED_CLIENT_CAPABILITY",
    "OVERLOADED",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND_LEGACY",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "URL_ELICITATION_REQUIRED",
]

# The following codes are those of JSON-RPC 2.0, section 5.1.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
# This code also stands for a method that exists, but not in the revision of the request.
METHOD_NOT_FOUND: Final = -32601
# This code also stands for a tool or a prompt that does not exist.
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

# Only legacy revisions use this code: in 2026-07-28, the code for a resource that does not exist is INVALID_PARAMS.
RESOURCE_NOT_FOUND_LEGACY: Final = -32002

# Only 2025-11-25 has this code: the user has to visit the listed URLs before the client may try again.
URL_ELICITATION_REQUIRED: Final = -32042

# The following codes exist since 2026-07-28.
HEADER_MISMATCH: Final = -32020
# This code also stands for an extension that the client has not declared.
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
# The error's data lists the revisions that the server serves, so that the client can choose another.
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

# This code is our own, because MCP has none for a receiver that is at its limit of requests; the sender may try again
# later. The code is outside -32768..-32000, which JSON-RPC reserves.
OVERLOADED: Final = -31429
