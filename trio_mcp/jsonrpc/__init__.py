"""JSON-RPC 2.0 without I/O: messages, encoding and decoding, and the requests in flight."""
