"""The HTTP servers that run the application: hypercorn, hardened, or a lean one of our own."""
