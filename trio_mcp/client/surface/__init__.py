"""Snapshots of all that a server offers, and the changes since."""
