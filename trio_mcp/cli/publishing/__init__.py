"""What `trio-mcp publish` and `new` make: a ``server.json``, a bundle, and the workflow that publishes them."""
