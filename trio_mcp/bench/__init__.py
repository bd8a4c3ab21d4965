"""Measuring a server that someone else runs: which tools to call, a ladder of calls in flight, and what it shows."""
