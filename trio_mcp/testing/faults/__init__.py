"""Connections and links with faults: what happens is a script of steps, the same words for bytes and for messages."""
