"""Recorders, which sit between a client and a server, pass their messages on, and record them."""
