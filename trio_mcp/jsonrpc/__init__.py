"""JSON-RPC 2.0 without I/O: messages, their coding, and what is in flight."""
