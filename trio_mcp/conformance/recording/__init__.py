"""Recorders, which sit between a client and a server and pass their messages on."""
