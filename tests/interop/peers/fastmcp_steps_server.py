"""A stdio server on FastMCP with a tool of ten steps, whose tasks lie in Valkey: give its socket and a ledger."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

socket, ledger = sys.argv[1:]
file = os.open(ledger, os.O_APPEND | os.O_WRONLY)
server = FastMCP("steps")
server.add_extension(TasksExtension(url=f"unix://{socket}", redelivery_timeout=timedelta(seconds=2)))


@server.tool(task=True)
async def film() -> str:
    for step in range(10):
        await asyncio.sleep(0.2)
        os.write(file, f"{os.getpid()} {step}\n".encode())
    return "done"


server.run(show_banner=False, log_level="CRITICAL")
