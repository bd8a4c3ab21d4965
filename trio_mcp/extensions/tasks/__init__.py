"""The extension ``io.modelcontextprotocol/tasks``: calls whose result is fetched later (SEP-2663)."""
