"""Streamable HTTP and HTTP+SSE: the client, the server, and the rules both follow."""
