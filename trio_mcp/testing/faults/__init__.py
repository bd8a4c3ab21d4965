"""Connections and links with injected faults: scripts of steps say what happens to their bytes or messages."""
