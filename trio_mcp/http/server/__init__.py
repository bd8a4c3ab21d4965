"""The server side of HTTP: the ASGI application."""
