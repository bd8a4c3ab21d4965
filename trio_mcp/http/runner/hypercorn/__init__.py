"""Hypercorn on Trio, hardened: HTTP/1.1, and HTTP/2 over TLS."""
