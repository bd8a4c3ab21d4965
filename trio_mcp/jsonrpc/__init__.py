"""JSON-RPC 2.0 without I/O: messages, encoding and decoding, and the requests in flight.

Public for those who write a transport: the messages that a `trio_mcp.low_level.Link` carries, and their bytes.
"""

from trio_mcp.jsonrpc.codec import LineDecoder as LineDecoder
from trio_mcp.jsonrpc.codec import decode as decode
from trio_mcp.jsonrpc.codec import encode as encode
from trio_mcp.jsonrpc.codec import encode_or_replace as encode_or_replace
from trio_mcp.jsonrpc.messages import Batch as Batch
from trio_mcp.jsonrpc.messages import ErrorData as ErrorData
from trio_mcp.jsonrpc.messages import ErrorResponse as ErrorResponse
from trio_mcp.jsonrpc.messages import Malformed as Malformed
from trio_mcp.jsonrpc.messages import Notification as Notification
from trio_mcp.jsonrpc.messages import Request as Request
from trio_mcp.jsonrpc.messages import Response as Response
from trio_mcp.jsonrpc.messages import TransportFailure as TransportFailure
