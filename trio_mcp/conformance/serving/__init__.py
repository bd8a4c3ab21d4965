"""The other side of a check: a generated server, for clients that are checked."""
