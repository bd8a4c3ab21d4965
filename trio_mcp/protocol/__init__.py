"""Floor 2, sans-IO: JSON-RPC envelopes and their codec, framing, the peer's bookkeeping, the two eras.

Nothing here knows an event loop: bytes and messages go in, messages and events come out.
"""
