"""Links over byte streams: TCP, TLS, Unix sockets, and any other Trio stream."""
