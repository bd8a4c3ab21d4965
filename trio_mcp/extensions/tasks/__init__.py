"""The tasks extension, ``io.modelcontextprotocol/tasks``: tool calls whose results are fetched later (SEP-2663)."""
