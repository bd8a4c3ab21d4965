"""What a client answers a server that asks."""
