"""The HTTP transports, Streamable HTTP and HTTP+SSE: the client, the server, and the rules that both sides share."""
