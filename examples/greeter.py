"""A server with one tool, on standard input and output.

$ trio-mcp call examples/greeter.py greet names=Ada names=Grace
$ python examples/greeter_client.py
"""

from trio_mcp import Context, Server

server = Server("greeter", version="1.0.0")


@server.tool
async def greet(names: list[str], ctx: Context) -> list[str]:
    """Greet some people.

    Args:
        names: Their first names.
    """
    greetings = []
    for number, name in enumerate(names, 1):
        greetings.append(f"Hello, {name}!")
        await ctx.report_progress(number, len(names))
    return greetings


if __name__ == "__main__":
    server.run()
