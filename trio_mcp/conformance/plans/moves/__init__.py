"""The moves that plans are made of."""
