"""Connections and links with faults, which follow a script of steps; bytes and messages use the same kinds of steps."""
