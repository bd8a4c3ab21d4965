"""The HTTP servers that run the application: hypercorn, hardened, or our own, which is lean."""
