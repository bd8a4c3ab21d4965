"""Read the configuration files in which hosts list their servers."""
