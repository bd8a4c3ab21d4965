"""One server made of others: two are mounted in it, and a proxy stands in front of one.

$ python examples/compose.py
$ trio-mcp list examples/compose.py:office
"""

import trio

from trio_mcp import Client, ProxyServer, Server

notes = Server("notes", version="1.0.0")
clock = Server("clock", version="1.0.0", revisions=["2025-11-25"])  # knows the legacy era only
KEPT: list[str] = []


@notes.tool
async def keep(text: str) -> int:
    """Keep a note, and return how many there are."""
    KEPT.append(text)
    return len(KEPT)


@notes.resource("notes://all")
async def all_notes() -> list[str]:
    """All notes."""
    return KEPT


@clock.tool
async def minutes(hours: int) -> int:
    """Convert hours to minutes."""
    return hours * 60


# Mounted: in this process, under a prefix. Each keeps its own lifespan, middleware and tests.
office = Server("office", version="1.0.0")
office.mount(notes, prefix="notes")
office.mount(clock, prefix="clock")

# A proxy: in front of any server, here or elsewhere, whatever language and revision it speaks.
modern_clock = ProxyServer(clock)


async def main() -> None:
    async with Client(office) as client:
        print([tool.name async for tool in client.iter_tools()])
        print([resource.uri async for resource in client.iter_resources()])
        print((await client.call_tool("notes__keep", {"text": "tea at five"})).data)
        print((await client.call_tool("clock__minutes", {"hours": 2})).data)
    async with Client(modern_clock) as client:
        print(client.protocol_version, (await client.call_tool("minutes", {"hours": 3})).data)


if __name__ == "__main__":
    trio.run(main)
