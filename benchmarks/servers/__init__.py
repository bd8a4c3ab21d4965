"""The server programs under test, one for each contender, and their commands."""
