"""Servers that break no sentence of the specification, and that every user calls broken."""
