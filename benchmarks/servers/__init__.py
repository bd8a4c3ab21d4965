"""Stdio server programs under test, one per contender; each serves the same three tools."""
