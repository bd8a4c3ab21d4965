"""The server programs under test, one for each contender."""
