"""The moves that plans are made of: the sequences of steps with which the kit tests a server."""
