"""FastMCP's example persistent_state: values that live as long as the client's session.

$ trio-mcp list examples/ports/fastmcp_persistent_state.py
"""

import uuid

from trio_mcp import Context, Server

server = Server("StateExample")


@server.tool
async def set_value(key: str, value: str, ctx: Context) -> str:
    """Store a value in session state."""
    ctx.session_state[key] = value
    return f"Stored '{key}' = '{value}'"


@server.tool
async def get_value(key: str, ctx: Context) -> str:
    """Retrieve a value from session state."""
    if key not in ctx.session_state:
        return f"Key '{key}' not found"
    return f"'{key}' = '{ctx.session_state[key]}'"


@server.tool
async def list_session_info(ctx: Context) -> dict[str, str | None]:
    """Get information about the current session."""
    # A session shows no id of its own, but its state can keep one.
    return {"session_id": ctx.session_state.setdefault("session id", str(uuid.uuid4())), "transport": None}


if __name__ == "__main__":
    server.run()
