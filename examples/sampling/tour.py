"""A server with a tool that lets the client's model call a function, and wants an answer with a type.

Start a client for it: with_anthropic.py, with_openai.py or with_google.py.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from trio_mcp import Context, Server, ToolError

server = Server("tour")
KILOMETRES = {"Bergen": 463, "Lillehammer": 168, "Trondheim": 492}


class Stop(BaseModel):
    town: str
    days: int = Field(ge=1, le=14)


async def distance(town: str) -> int:
    """Look up how many kilometres it is from Oslo to a town."""
    if town not in KILOMETRES:
        raise ToolError(f"no such town; there are {', '.join(KILOMETRES)}")
    return KILOMETRES[town]


@server.tool
async def plan(wish: str, ctx: Context) -> list[Stop]:
    """Plan a tour that begins in Oslo."""
    return await ctx.sample(
        f"Plan a tour that begins in Oslo: {wish}", max_tokens=2000, tools=[distance], result_type=list[Stop]
    )


if __name__ == "__main__":
    server.run()
