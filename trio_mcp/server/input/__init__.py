"""Asking the client for input, in both eras."""
