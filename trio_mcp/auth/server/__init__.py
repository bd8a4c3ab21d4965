"""Servers that accept tokens."""
