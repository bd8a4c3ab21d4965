"""The legacy and the modern era of the protocol, and how each side finds out which era the other speaks. Sans-I/O."""
