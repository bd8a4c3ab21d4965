"""A job that outlives the call that starts it: it runs in the server's own nursery, and clients watch it.

$ python examples/jobs.py
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from trio_mcp import Client, Context, ResourceNotFound, ResourceUpdated, Server


@dataclass
class Jobs:
    """The jobs of a run of the server."""

    nursery: trio.Nursery
    done: dict[int, int] = field(default_factory=dict)


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[Jobs]:
    """Open the nursery of the jobs; those that still run when the server ends are cancelled."""
    async with trio.open_nursery() as nursery:
        yield Jobs(nursery)
        nursery.cancel_scope.cancel("the server ends")


server = Server("jobs", version="1.0.0", lifespan=lifespan)


@server.tool
async def start(steps: int, ctx: Context[Jobs]) -> str:
    """Start a job, and return the URI of its state."""
    jobs = ctx.state
    number = len(jobs.done) + 1
    jobs.done[number] = 0
    jobs.nursery.start_soon(work, jobs, number, steps)
    return f"job://{number}"


async def work(jobs: Jobs, number: int, steps: int) -> None:
    for _ in range(steps):
        await trio.sleep(0.01)
        jobs.done[number] += 1
    server.notify_resource_updated(f"job://{number}")


@server.resource("job://{number}", mime_type="text/plain")
async def job(number: int, ctx: Context[Jobs]) -> str:
    """How far a job is."""
    if number not in ctx.state.done:
        raise ResourceNotFound(str(number))
    return f"{ctx.state.done[number]} steps done"


async def main() -> None:
    async with Client(server) as client, client.listen(resources=["job://1"]) as events:
        print("started", (await client.call_tool("start", {"steps": 3})).data)
        async for event in events:
            if isinstance(event, ResourceUpdated):
                print(event.uri, "is at", (await client.read_resource(event.uri)).text)
            break


if __name__ == "__main__":
    trio.run(main)
