"""The HTTP servers that can run the application: a hardened hypercorn, or our own lean server."""
