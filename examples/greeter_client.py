"""A client that starts a server as its child process, lists its tools and calls one.

$ python examples/greeter_client.py
"""

import sys
from pathlib import Path

import trio

from trio_mcp import Client, StdioServerParameters

SERVER = Path(__file__).with_name("greeter.py")


async def main() -> None:
    async with Client(StdioServerParameters(sys.executable, [str(SERVER)])) as client:
        print("speaking", client.protocol_version)
        async for tool in client.iter_tools():
            print(f"{tool.name}: {tool.description}")
        with trio.fail_after(30):  # a call is an ordinary Trio operation
            result = await client.call_tool(
                "greet",
                {"names": ["Ada", "Grace"]},
                on_progress=lambda progress: print(f"{progress.progress:g} of {progress.total:g}"),
            )
        print(result.data)


if __name__ == "__main__":
    trio.run(main)
