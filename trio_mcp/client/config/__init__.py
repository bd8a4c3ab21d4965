"""`mcpServers` files."""
