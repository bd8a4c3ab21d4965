"""The configuration files in which hosts list their servers."""
