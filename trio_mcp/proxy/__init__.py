"""The proxy: a client on one side, a server on the other."""
