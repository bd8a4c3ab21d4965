"""Serving MCP over HTTP: the ASGI application of a server, in both eras."""
