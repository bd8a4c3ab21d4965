"""The skills extension, ``io.modelcontextprotocol/skills``: folders of instructions that are verified (SEP-2640)."""
