"""The legacy and the modern era of the protocol, and how each side finds out which one the other speaks. Sans-I/O."""
