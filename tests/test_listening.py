"""Ports for servers are held from the moment they are chosen."""

from __future__ import annotations

import socket
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio

from tests.listening import config_of_held, hold, on_held_port, port_of
from trio_mcp import Client, Server


def taken(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


async def test_a_port_for_other_processes_is_theirs_one_after_the_other() -> None:
    with hold() as held:
        port = port_of(held)
        for _ in range(2):
            assert taken(port)
            with pytest.raises(OSError, match="connect"):
                await trio.open_tcp_stream("127.0.0.1", port)
            async with trio.open_nursery() as nursery:
                url = await nursery.start(partial(Server("held").serve_http, config=config_of_held(port)))
                assert urlsplit(url).port == port
                async with Client(url) as client:
                    await client.ping()
                nursery.cancel_scope.cancel()
    assert not taken(port)


async def test_a_port_for_this_process_is_its_own_before_it_serves() -> None:
    with on_held_port() as (port, config):
        assert taken(port)
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(Server("held").serve_http, config=config))
            assert urlsplit(url).port == port
            nursery.cancel_scope.cancel()
