"""The apps extension, ``io.modelcontextprotocol/ui``: pages that a host shows for the results of tools (SEP-1865)."""
