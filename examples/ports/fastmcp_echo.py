"""FastMCP's example echo.py: a tool, a resource, a template and a prompt.

$ trio-mcp call examples/ports/fastmcp_echo.py echo_tool text=hello
"""

from trio_mcp import Server

server = Server("Echo Server")


@server.tool
def echo_tool(text: str) -> str:
    """Echo the input text"""
    return text


@server.resource("echo://static", mime_type="text/plain")
def echo_resource() -> str:
    return "Echo!"


@server.resource("echo://{text}", mime_type="text/plain")
def echo_template(text: str) -> str:
    """Echo the input text"""
    return f"Echo: {text}"


@server.prompt(name="echo")
def echo_prompt(text: str) -> str:
    return text


if __name__ == "__main__":
    server.run()
