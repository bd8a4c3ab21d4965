"""The proxy, which is a client on one side and a server on the other."""
