"""Streamable HTTP and HTTP+SSE: client, server, and the rules they share."""
