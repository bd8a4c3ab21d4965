"""The files that `trio-mcp publish` and `new` make: a ``server.json``, a bundle, and a workflow."""
