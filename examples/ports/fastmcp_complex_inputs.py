"""FastMCP's example complex_inputs.py: models as arguments.

$ trio-mcp list examples/ports/fastmcp_complex_inputs.py
"""

from typing import Annotated

from pydantic import BaseModel, Field

from trio_mcp import FunctionOptions, Server

server = Server("Shrimp Tank", functions=FunctionOptions(inline_definitions=True))  # as FastMCP does


class ShrimpTank(BaseModel):
    class Shrimp(BaseModel):
        name: Annotated[str, Field(max_length=10)]

    shrimp: list[Shrimp]


@server.tool
def name_shrimp(tank: ShrimpTank, extra_names: Annotated[list[str], Field(max_length=10)]) -> list[str]:
    """List all shrimp names in the tank"""
    return [*(shrimp.name for shrimp in tank.shrimp), *extra_names]


if __name__ == "__main__":
    server.run()
