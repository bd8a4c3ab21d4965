"""The rules of authorization: what to ask, what to accept, what to send. No event loop, no I/O."""
