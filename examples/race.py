"""Progress and cancellation: two mirrors are asked at once, the first wins, and the other is told to stop.

$ python examples/race.py
"""

import trio

from trio_mcp import Client, Context, Server
from trio_mcp.types import ProgressNotificationParams

server = Server("mirrors", version="1.0.0")


@server.tool
async def download(mirror: str, seconds_a_part: float, ctx: Context) -> str:
    """Download a file in three parts.

    Args:
        mirror: Where from.
        seconds_a_part: How slow it is.
    """
    try:
        for part in range(1, 4):
            await trio.sleep(seconds_a_part)
            await ctx.report_progress(part, 3, f"{mirror}: part {part}")
    except trio.Cancelled as exc:  # the caller's cancellation arrives here: clean up, and pass it on
        print(f"server: {mirror} stopped, {exc.reason}")
        raise
    return f"the file from {mirror}"


def show(progress: ProgressNotificationParams) -> None:
    print("client:", progress.message)


async def main() -> None:
    mirrors = {"slow": 60.0, "fast": 0.01}

    async with Client(server) as client, trio.open_nursery() as nursery:

        async def race(mirror: str, pause: float) -> None:
            result = await client.call_tool("download", {"mirror": mirror, "seconds_a_part": pause}, on_progress=show)
            print("client: got", result.data)
            nursery.cancel_scope.cancel("another mirror was faster")

        for mirror, pause in mirrors.items():
            nursery.start_soon(race, mirror, pause)


if __name__ == "__main__":
    trio.run(main)
