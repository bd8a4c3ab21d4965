"""A server whose tools do everything that a tool should not do to its standard streams, or to its callers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time

import trio

from trio_mcp import Server

server = Server("noisy")
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")


@server.tool
def make_noise(how: str) -> str:
    """Write NOISE to what a program believes to be its standard output."""
    match how:
        case "print":
            print("NOISE", flush=True)
        case "unflushed":
            print("NOISE")
        case "buffer":
            sys.stdout.buffer.write(b"NOISE\n")
            sys.stdout.buffer.flush()
        case "original":
            print("NOISE", file=sys.__stdout__, flush=True)
        case "descriptor":
            os.write(1, b"NOISE\n")
        case "child":
            subprocess.run(["echo", "NOISE"], check=True)
        case "shell":
            os.system("echo NOISE")
        case "inherited":  # every descriptor that a child could get hold of
            subprocess.run(
                "for fd in /proc/self/fd/*; do echo NOISE > $fd; done", shell=True, close_fds=False, check=False
            )
        case "logging":
            logging.getLogger("noisy").info("NOISE")
        case _:
            raise ValueError(how)
    return "done"


@server.tool
def read_input(how: str) -> str:
    """Read from what a program believes to be its standard input."""
    match how:
        case "descriptor":
            return os.read(0, 100).decode()
        case "child":
            return subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout.decode()
        case _:
            return sys.stdin.read()


@server.tool
async def echo(value: int | str) -> int | str:
    return value


@server.tool
async def big(size: int) -> str:
    return "x" * size


@server.tool
async def sleep_async() -> None:
    print("SLEEPING", file=sys.stderr, flush=True)
    await trio.sleep_forever()


@server.tool
def sleep_sync() -> None:
    print("SLEEPING", file=sys.stderr, flush=True)
    time.sleep(1000)


if __name__ == "__main__":
    server.run()
