"""``trio-mcp run`` and ``trio-mcp bridge``: serve the server in a file or module, or what another server offers."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp._keywords import did_you_mean
from trio_mcp.cli.exits import FAILED, INTERRUPTED, OK, Exit
from trio_mcp.cli.loading import check_keys, load_server, use_stores
from trio_mcp.cli.messages import near_file
from trio_mcp.server.base_server import TRANSPORTS, BaseServer, core_of

if TYPE_CHECKING:  # imported at run time only if tokens are checked, because most servers check none
    from trio_mcp.auth.server.resource import ResourceServer

__all__ = ["bridge", "run"]

LISTENING = ("host", "port", "runner", "path")
GUARDED = ("allowed_host", "allowed_origin", "cors")
PROTECTED = ("auth_issuer", "auth_resource", "auth_scope")
OPTIONS = {
    "stdio": (),
    "http": (*LISTENING, *GUARDED, *PROTECTED, "sse_path", "stateless", "json_only", "event_store", "processes"),
    "sse": (*LISTENING, *GUARDED, *PROTECTED),
    "websocket": ("host", "port", "path", "allowed_host", "allowed_origin", *PROTECTED, "processes"),
    "tcp": ("host", "port", "allow_remote", "certificate", "key"),
    "unix": ("path", "permissions"),
}
"""Transport -> the options that it takes, under the names that `argparse` gives them."""

LISTS = {
    "allowed_host": "allowed_hosts",
    "allowed_origin": "allowed_origins",
    "auth_issuer": "issuers",
    "auth_scope": "scopes",
}
"""Option that may be given several times -> the setting that collects its values."""


def run(options: argparse.Namespace) -> int:
    """Serve the server from a file or module."""
    if options.reload:
        if options.processes is not None:
            raise Exit("--processes does not apply with --reload: send SIGHUP to restart one process after the other")
        return _reload(options)
    return _serve(options, lambda: use_stores(load_server(options.server, options.file_arguments), options.stores))


def bridge(options: argparse.Namespace) -> int:
    """Serve everything that another server offers, over another transport or in another era."""
    # The client is imported only by this function, because `run` needs none.
    from trio_mcp.cli.targets import traced
    from trio_mcp.proxy.proxy_server import ProxyServer

    for name in ("root", "timeout", "log_level"):
        if getattr(options, name):
            raise Exit(f"{_flag(name)} does not apply to bridge, because each client of the bridge makes this choice")

    def proxy() -> BaseServer:
        try:
            return ProxyServer(traced(options), client={"mode": options.mode})
        except (TypeError, ValueError) as exc:
            raise Exit(str(exc)) from None

    return _serve(options, proxy)


def _reload(options: argparse.Namespace) -> int:
    from trio_mcp.cli.reload import reload_process, reload_stdio
    from trio_mcp.cli.reporting import until_signalled

    source = Path(options.server.partition(":")[0])
    # A missing file is reported by this process: the child process would report it, too, but then this process would
    # wait for the file to appear.
    if source.suffix == ".py" and not source.is_file():
        raise Exit(f"there is no file {str(source)!r}{near_file(str(source))}")
    if options.transport != "stdio" and options.port == 0:
        raise Exit("--reload needs a fixed --port: with 0, each restart would use a different one")
    command = [sys.executable, "-m", "trio_mcp", "run", options.server, "--transport", options.transport]
    for name, value in _given(options).items():
        flag = _flag(name)
        # The flag and its value are joined by `=` into one word, because a value may begin with a dash.
        command += [flag] if value is True else [f"{flag}={each}" for each in (value if name in LISTS else [value])]
    for name in ("log_level", "stores"):
        if (value := getattr(options, name)) is not None:
            command.append(f"{_flag(name)}={value}")
    if options.file_arguments:
        command += ["--", *options.file_arguments]
    # A module is imported from the current directory, as with `python -m`, so that is the folder to watch.
    folder = source.resolve().parent if source.suffix == ".py" else Path.cwd()
    serve_again = reload_stdio if options.transport == "stdio" else reload_process
    received = trio.run(until_signalled, partial(serve_again, command, folder))
    return INTERRUPTED if received == signal.SIGINT else OK


def _serve(options: argparse.Namespace, make_server: Callable[[], BaseServer]) -> int:
    """Run a server in this process, until the client leaves or a signal arrives.

    Args:
        options: The command line.
        make_server: Makes the server.
    """
    given = _given(options)
    transport = options.transport
    # Options without effect are refused, since users would rely on them, for example on --allowed-host with stdio.
    for name in given:
        if name not in OPTIONS.get(transport, given):
            raise Exit(f"{_flag(name)} does not apply to --transport {transport}")
    # The server is made only after the options have been checked, because importing its file may take long, or fail for
    # its own reasons.
    server = make_server()
    if transport not in TRANSPORTS:
        meant = did_you_mean(transport, TRANSPORTS) or f"; the transports are: {', '.join(TRANSPORTS)}"
        raise Exit(f"there is no transport {transport!r}{meant}")
    if transport == "stdio" and sys.stdin.isatty():
        # Without a message that it waits for input, the program would seem to hang.
        print(
            f"trio-mcp {options.command}: waiting for JSON-RPC messages on standard input, as an MCP host sends them;"
            " press Ctrl-C to stop. To try a server, use `trio-mcp inspect` and `trio-mcp call`.",
            file=sys.stderr,
        )
    check_keys(server)
    processes = given.pop("processes", None)
    if processes is not None:
        _check_processes(server, transport, processes)
    address = _address(given)
    _check_scopes(server, transport, given)
    with _event_store(given):
        try:
            # For a bridge `log_level` is always None: its `--log-level` would mean the other server's level, and is
            # refused.
            settings = _settings(transport, address, given)
            server.run(transport, log_level=options.log_level, processes=processes, **address, **settings)
        # Python raises OverflowError for a port number of more than 16 bits.
        except (OSError, OverflowError) as exc:
            raise Exit(f"can't serve: {getattr(exc, 'strerror', None) or exc}", FAILED) from None
        except Exception as exc:
            from trio_mcp.stores.contract import StoreError  # imported late: few servers have stores

            if not isinstance(exc, StoreError):
                raise
            raise Exit(f"can't use the stores of {server.info.name!r}: {exc}", FAILED) from None
    return OK


def _address(given: dict[str, Any]) -> dict[str, Any]:
    # Host and port are taken out of `given`, so that only the settings of the endpoint are left.
    address: dict[str, Any] = {name: given.pop(name) for name in ("host", "port") if name in given}
    if address:
        # The runner's own check is made before anything is opened, so that a wrong port is a usage error.
        from trio_mcp.http.runner.settings import settings_at

        try:
            settings_at(**{"host": "127.0.0.1", "port": 0, **address})
        except (TypeError, ValueError) as exc:
            raise Exit(str(exc)) from None
    return address


def _given(options: argparse.Namespace) -> dict[str, Any]:
    names = dict.fromkeys(name for each in OPTIONS.values() for name in each)
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@contextlib.contextmanager
def _event_store(given: dict[str, Any]) -> Iterator[None]:
    """Open the event store and put it into ``given`` in place of the name of its file; close it at the end."""
    if "event_store" not in given:
        yield
        return
    import sqlite3

    from trio_mcp import SqliteEventStore

    given["event_store"] = store = SqliteEventStore(path := given["event_store"])
    try:
        # The store is opened in a Trio run of its own, although `server.run` starts another one: the store is not tied
        # to a run.
        trio.run(store.__aenter__)
    except (OSError, sqlite3.Error) as exc:
        raise Exit(f"can't use {path} as an event store: {exc}") from None
    try:
        yield
    finally:
        trio.run(store.aclose)


def _check_processes(server: BaseServer, transport: str, processes: int) -> None:
    from trio_mcp.server.processes.command import again, check_processes, check_stores

    # These checks are made here as well as by `run`, so that what they refuse is a usage error.
    try:
        check_processes(transport, processes)
        check_stores(processes, core_of(server).stores)
        again()
    except (RuntimeError, ValueError) as exc:
        raise Exit(str(exc)) from None


def _check_scopes(server: BaseServer, transport: str, given: dict[str, Any]) -> None:
    scoped = core_of(server).scoped
    if scoped and "auth_resource" not in given and "auth_issuer" in OPTIONS.get(transport, ()):
        raise Exit(f"{scoped} needs scopes, which are only enforced with --auth-issuer and --auth-resource")


def _settings(transport: str, address: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    match transport:
        case "tcp":
            return _tcp(address.get("host"), **given)
        case "unix":
            return _unix(**given)
    return _endpoint(transport, address, given) if given else {}


def _tcp(
    host: str | None, allow_remote: bool = False, certificate: str | None = None, key: str | None = None
) -> dict[str, Any]:
    from trio_mcp._addresses import is_loopback

    if key is not None and certificate is None:
        raise Exit("--key needs --certificate")
    # The host is checked here, so that the usage error names options of the command line. `localhost` is the only name
    # that counts as local: other names would have to be resolved first, and few servers are given one.
    if not (certificate or allow_remote or host in (None, "localhost") or is_loopback(str(host))):
        raise Exit(
            f"the address {host} can be reached from other machines: add --certificate for TLS, or --allow-remote"
        )
    if certificate is None:
        return {"allow_remote": allow_remote}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as exc:  # errors of OpenSSL are OSErrors, too
        raise Exit(f"can't use {certificate} as a certificate: {exc.strerror or exc}") from None
    return {"ssl_context": context, "allow_remote": allow_remote}


def _unix(path: str | None = None, permissions: str = "600") -> dict[str, Any]:
    from trio_mcp.sockets.addresses import unix_path

    if path is None:
        raise Exit("--transport unix needs --path FILE, the path of the socket")
    if not re.fullmatch("0?[0-7]{3}", permissions):
        raise Exit(f"--permissions must be three octal digits, such as 660; got {permissions!r}")
    try:
        return {"path": unix_path(path), "mode": int(permissions, 8)}
    except ValueError as exc:
        raise Exit(str(exc)) from None


def _endpoint(transport: str, address: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    from trio_mcp.http.serve import check_resource
    from trio_mcp.http.server.options import HttpOptions

    if given.get("runner") == "httptools":
        # The import of httptools is tried before serving, so that a missing extra is a usage error: the runner imports
        # it only later.
        from trio_mcp.http.runner.h1.parsers import httptools_parser

        try:
            httptools_parser()
        except RuntimeError as exc:  # the extra with the parser is not installed
            raise Exit(str(exc)) from None
    auth = _protection(**{name: given.pop(name, None) for name in PROTECTED})
    settings = {LISTS.get(name, name): value for name, value in given.items()}
    # For sse and websocket, the setting that corresponds to `--path` has another name.
    if transport in ("sse", "websocket") and "path" in settings:
        settings[f"{transport}_path"] = settings.pop("path")
    try:
        options = HttpOptions(**settings, auth=auth)
        if auth is not None:
            check_resource(auth.resource, address.get("host", "127.0.0.1"), address.get("port", 8000), options)
    except ValueError as exc:
        raise Exit(str(exc)) from None
    return {"options": options}


def _protection(
    auth_issuer: list[str] | None, auth_resource: str | None, auth_scope: list[str] | None
) -> ResourceServer | None:
    if auth_issuer is None and auth_resource is None and auth_scope is None:
        return None
    if auth_issuer is None:
        raise Exit("--auth-issuer is required: give the URL of the authorization server whose tokens are admitted")
    if auth_resource is None:
        raise Exit("--auth-resource is required: give the URL by which clients reach this server")
    from trio_mcp.auth.server.resource import ResourceServer

    try:
        return ResourceServer(auth_resource, issuers=auth_issuer, scopes=auth_scope or ())
    except (ImportError, ValueError) as exc:
        raise Exit(str(exc)) from None
