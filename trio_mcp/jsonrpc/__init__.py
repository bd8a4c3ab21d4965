"""JSON-RPC 2.0 without I/O: messages, encoding and decoding, and the requests in flight.

The public names are for authors of transports: the messages that a `trio_mcp.low_level.Link` carries, and their codec.
"""

from trio_mcp.jsonrpc.codec import (
    LineDecoder as LineDecoder,
    decode as decode,
    encode as encode,
    encode_or_replace as encode_or_replace,
)
from trio_mcp.jsonrpc.messages import (
    Batch as Batch,
    ErrorData as ErrorData,
    ErrorResponse as ErrorResponse,
    Malformed as Malformed,
    Notification as Notification,
    Request as Request,
    Response as Response,
    TransportFailure as TransportFailure,
)
