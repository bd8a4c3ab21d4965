"""Floor 4: links.

A transport is an async context manager that yields a `trio_mcp.link.Link`; it never knows a session.
"""
