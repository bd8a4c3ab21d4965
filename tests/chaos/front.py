"""nginx before the server: with connections to it that are kept, and with one for each request."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.listening import port_of
from tests.nginx import folder_of_nginx, nginx

SERVERS = """
    access_log off;
    upstream chaos {{ server 127.0.0.1:{port}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{kept};
        location / {{
            proxy_pass http://chaos; proxy_http_version 1.1; proxy_read_timeout 300s;
            proxy_set_header Connection ""; proxy_set_header Host $host;
        }}
    }}
    server {{
        listen 127.0.0.1:{anew};
        location / {{ proxy_pass http://127.0.0.1:{port}; proxy_read_timeout 300s; }}
    }}
"""

CONNECTIONS = 4096
"""Chosen: several times the calls and listeners of a run, which have one on each side."""


@contextlib.contextmanager
def before(port: int, log: Path) -> Iterator[tuple[str, str]]:
    """Run an nginx for the block; yield its URLs, first that whose connections to the server are kept.

    Args:
        port: The server's port.
        log: What it has complained about is left there.
    """
    with folder_of_nginx() as folder, contextlib.ExitStack() as stack:
        fronts = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        kept, anew = map(port_of, fronts)
        servers = SERVERS.format(port=port, kept=kept, anew=anew)
        with nginx(folder, servers, fronts, connections=CONNECTIONS, may_complain=True):
            try:
                yield f"http://127.0.0.1:{kept}/mcp", f"http://127.0.0.1:{anew}/mcp"
            finally:
                shutil.copy(folder / "error.log", log)
