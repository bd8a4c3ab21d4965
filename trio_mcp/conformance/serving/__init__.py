"""A generated server that the kit runs in order to check the client that connects to it."""
