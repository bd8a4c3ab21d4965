"""A stdio server on FastMCP with a page, and tools for the model and for the page."""

from __future__ import annotations

from fastmcp import FastMCP
from fastmcp.apps import AppConfig, ResourceCSP

server = FastMCP("dice")


@server.resource("ui://dice/view", app=AppConfig(csp=ResourceCSP(connect_domains=["https://dice.example"])))
def view() -> str:
    return "<!doctype html><p>dice</p>"


@server.tool(app=AppConfig(resource_uri="ui://dice/view"))
def roll(sides: int) -> dict[str, int]:
    return {"rolled": sides}


@server.tool(app=AppConfig(visibility=["app"]))
def again() -> int:
    return 6


@server.tool(app=AppConfig(visibility=["model"]))
def cheat() -> int:
    return 1


if __name__ == "__main__":
    server.run(show_banner=False)
