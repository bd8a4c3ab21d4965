"""JSON-RPC error codes that travel on the wire (2026-07-28 basic, "Error codes").

Constants alone: importing them costs no model.
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

# JSON-RPC 2.0, section 5.1
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

# Legacy revisions only; 2026-07-28 answers INVALID_PARAMS for a resource that does not exist.
RESOURCE_NOT_FOUND_LEGACY: Final = -32002

# 2025-11-25 only: the caller has to visit the listed URLs before it may try again.
URL_ELICITATION_REQUIRED: Final = -32042

# Since 2026-07-28
HEADER_MISMATCH: Final = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

# Ours: the receiver is at its limit of requests. It lies outside -32768..-32000, which JSON-RPC reserves.
# Who gets it may try again later.
OVERLOADED: Final = -31429
