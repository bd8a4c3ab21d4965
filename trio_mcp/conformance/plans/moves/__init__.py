"""The moves that plans are made of: what the kit does to provoke a server."""
