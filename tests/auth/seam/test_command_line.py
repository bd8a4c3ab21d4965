"""``login``, ``logout``, ``logins``, and commands that use what is stored, against a server that wants a login."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import urllib.request
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from tests.listening import on_held_port
from trio_mcp import Client, Context, Server, StdioServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.auth import FileTokens, JwtVerifier, MemoryTokens, ResourceServer
from trio_mcp.auth.client import settings
from trio_mcp.auth.rules.login import PROVIDER, ClientRecord, Login
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.cli import main
from trio_mcp.cli.exits import FAILED, LOGIN, NO_CONNECTION, OK, USAGE


def make_server() -> Server:
    server = Server("guarded")

    @server.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.principal is not None
        return f"{ctx.principal.subject} of {ctx.principal.client_id}, for {' '.join(sorted(ctx.principal.scopes))}"

    return server


@attrs.define
class Site:
    """A protected server and its authorization server, in a thread.

    Attributes:
        url: The URL of the server.
        issuer: The authorization server.
        visits: The pages that a browser was sent to.
    """

    issuer: AuthorizationServer
    url: str = ""
    visits: list[str] = attrs.field(factory=list)
    token: Any = None
    stop: Any = None
    ready: threading.Event = attrs.field(factory=threading.Event)

    async def serve(self) -> None:
        self.token, self.stop = trio.lowlevel.current_trio_token(), trio.Event()
        with on_held_port() as (port, config):
            self.url = f"http://127.0.0.1:{port}/mcp"
            async with self.issuer.served() as issuer, background_nursery() as nursery:
                auth = ResourceServer(self.url, issuers=[issuer], scopes=["read"], verifier=JwtVerifier())
                await nursery.start(partial(make_server().serve_http, config=config, auth=auth))
                self.ready.set()
                await self.stop.wait()

    def open(self, url: str) -> bool:
        """Be a browser, and the person before it."""
        self.visits.append(url)
        with urllib.request.urlopen(url) as page:
            page.read()
        return True


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    site = Site(AuthorizationServer())
    monkeypatch.setattr(webbrowser, "get", lambda: site)
    thread = threading.Thread(target=trio.run, args=[site.serve])
    thread.start()
    try:
        assert site.ready.wait(30)
        yield site
    finally:
        with contextlib.suppress(trio.RunFinishedError):
            site.token.run_sync_soon(site.stop.set)
        thread.join(30)


def tokens_of(folder: Path) -> list[str]:
    """Return the secrets that are stored."""
    found = []
    for path in folder.glob("trio-mcp/logins/*.json"):
        login = json.loads(json.loads(path.read_text())["text"])
        found += [value for key, value in login.items() if key.endswith("_token") and value]
    return found


def test_a_login_is_used_until_it_is_dropped(site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = []

    def run(*words: str, status: int = OK) -> str:
        got = main(list(words))
        out, err = capfd.readouterr()
        said.append(out + err)
        assert got == status, out + err
        return out + err

    # A script is told what to do, in a line and by its own status; and asks no one.
    assert run("list", site.url, status=LOGIN).endswith(f"sign in first: trio-mcp login {site.url}\n")
    assert run("logins") == "no logins are stored\n"
    assert not site.visits

    assert f"signed in to {site.url} at {site.issuer.issuer}, for read\n" in run("login", site.url)
    assert run("call", site.url, "whoami").startswith("alice of ")
    assert "authorization: bearer ***" in run("call", site.url, "whoami", "--verbose").lower()
    assert len(site.visits) == 1
    assert run("logins") == f"{site.url} at {site.issuer.issuer}, for read; renewed when needed\n"
    (listed,) = json.loads(run("logins", "--json"))
    assert (listed["server"], listed["scopes"], listed["renewable"]) == (site.url, ["read"], True)

    # Also for what speaks for itself, and from a configuration.
    assert "whoami" in run("check", site.url, "--dry-run")
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"url": site.url, "auth": "oauth"}}}))
    assert run("call", f"{config}#a", "whoami").startswith("alice")
    assert "401" in run("list", site.url, "--auth", "off", status=NO_CONNECTION)
    assert "401" in run("list", f"{config}#a", "--auth", "off", status=NO_CONNECTION)
    assert "401" in run("list", site.url, "--header", "Authorization: Bearer x", status=NO_CONNECTION)

    # It is renewed, not asked for.
    site.issuer.issued.expire()
    assert run("call", site.url, "whoami").startswith("alice")
    assert len(site.visits) == 1

    tokens = tokens_of(tmp_path)
    assert run("logout", site.url) == f"signed out of {site.url}\n"
    assert all(site.issuer.claims_of(token) is None for token in tokens)
    assert run("logout", site.url) == f"no login is stored for {site.url}\n"
    run("call", site.url, "whoami", status=LOGIN)
    # A terminal is not needed where it is asked for.
    assert run("call", site.url, "whoami", "--auth", "browser").endswith("read\n")
    assert run("logout", "--all") == f"signed out of {site.url}\n"
    assert len(tokens) == 2
    assert not any(token in text for token in tokens for text in said)


def test_a_login_may_be_for_a_client_that_was_registered(
    site: Site, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site.issuer.add_client("mine", "its secret", redirects=["http://127.0.0.1/callback"])
    monkeypatch.setenv("TRIO_MCP_CLIENT_SECRET", "its secret")
    assert main(["login", site.url, "--client-id", "mine", "--scope", "read", "--scope", "write"]) == OK
    monkeypatch.delenv("TRIO_MCP_CLIENT_SECRET")
    site.issuer.issued.expire()
    capfd.readouterr()
    assert main(["call", site.url, "whoami"]) == OK
    assert capfd.readouterr().out == "alice of mine, for read write\n"


def test_what_can_go_wrong_is_told(site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words, status, message in (
        (["logout"], USAGE, "either a TARGET or --all"),
        (["logout", site.url, "--all"], USAGE, "either a TARGET or --all"),
        (["login", "tcp://localhost:1"], USAGE, "logins are for servers over HTTP and WebSocket"),
        (["login", "http://127.0.0.1:1/mcp"], NO_CONNECTION, "resource metadata"),
        (["login", "http://host.example/mcp"], NO_CONNECTION, "is not https"),
        (["login", site.url, "--client-id", ""], USAGE, "the id of RegisteredClient must not be empty"),
    ):
        assert main(words) == status
        assert message in capfd.readouterr().err
    site.issuer.denies = True
    assert main(["login", site.url]) == NO_CONNECTION
    assert "access_denied" in capfd.readouterr().err
    site.issuer.denies = False
    assert main(["login", site.url]) == OK
    # It can't be revoked: dropped all the same.
    site.issuer.faults["revoke"] = lambda request, handle: attrs.evolve(handle(request), status=503)
    assert main(["logout", site.url]) == FAILED
    assert "revocation" in capfd.readouterr().err
    assert tokens_of(tmp_path) == []


def test_a_bridge_gives_a_host_a_server_that_is_signed_in(site: Site, tmp_path: Path) -> None:
    assert main(["login", site.url]) == OK

    async def host() -> None:
        words = ["-m", "trio_mcp", "bridge", site.url]
        async with Client(StdioServerParameters(sys.executable, words, env={"XDG_DATA_HOME": str(tmp_path)})) as client:
            assert (await client.call_tool("whoami")).data.startswith("alice")

    trio.run(host)


def test_a_login_is_dropped_where_the_configuration_keeps_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:

    store = MemoryTokens()  # in place of a keychain
    monkeypatch.setitem(settings.STORES, "keyring", lambda: store)
    config = tmp_path / "mcp.json"
    config.write_text(
        json.dumps({"mcpServers": {"a": {"url": site.url, "auth": {"type": "oauth", "store": "keyring"}}}})
    )
    assert main(["login", f"{config}#a"]) == OK
    assert trio.run(store.keys) == [site.url]
    capfd.readouterr()
    assert main(["logout", f"{config}#a"]) == OK
    assert capfd.readouterr().out == f"signed out of {site.url}\n"
    assert trio.run(store.keys) == []
    assert site.issuer.count("revoke") == 1


@pytest.mark.parametrize("changed", ["key", "text"])
def test_a_damaged_file_is_named_and_left_alone(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    changed: str,
) -> None:
    """Half a character, which JSON can have and UTF-8 can't: it must not keep the other logins from being used."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    url, other = "https://host.example/mcp", "https://other.example/mcp"
    client = ClientRecord("id", "given")
    login = Login(url, "https://id.example", client, "https://id.example/token", "CANARY", refresh_token="r")
    trio.run(FileTokens().save, url, login.to_json())
    (path,) = FileTokens().folder.iterdir()
    trio.run(FileTokens().save, other, login.to_json())
    path.write_text(json.dumps({**json.loads(path.read_text()), changed: "\ud800"}))
    for words, said in (
        (["logins"], f"{other} at https://id.example; renewed when needed\n"),
        (["logout", "--all"], f"signed out of {other}\n"),
    ):
        caplog.clear()
        assert main(words) == OK
        assert capfd.readouterr().out == said
        # A warning, which the command line shows on stderr.
        (warning,) = caplog.messages
        assert f"{path} is damaged" in warning
        assert "CANARY" not in warning
    assert main(["logout", url]) == FAILED
    assert f"{path} is damaged" in capfd.readouterr().err
    assert list(FileTokens().folder.glob("*.json")) == [path]


@pytest.mark.parametrize("command", ["login", "logout", "list"])
def test_a_url_that_is_not_text_is_one_line(capfd: pytest.CaptureFixture[str], command: str) -> None:
    """As a shell passes bytes that are not UTF-8."""
    assert main([command, "https://host.example/\udcff"]) == USAGE
    assert "url must not contain half a character" in capfd.readouterr().err


def test_a_login_at_an_identity_provider_is_listed_as_one_and_dropped_by_its_url(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    url = "https://id.example"
    login = Login(None, url, ClientRecord("id", "given"), f"{url}/token", "t", refresh_token="r").to_json()
    for key in (url, url + PROVIDER):
        trio.run(FileTokens().save, key, login)
    assert main(["logins"]) == OK
    listed = f"{url} at {url}; renewed when needed\n{url} (identity provider) at {url}; renewed when needed\n"
    assert capfd.readouterr().out == listed
    assert main(["logins", "--json"]) == OK
    found = [(each["server"], each["identityProvider"]) for each in json.loads(capfd.readouterr().out)]
    assert found == [(url, False), (url, True)]
    assert main(["logout", "--all"]) == OK
    assert capfd.readouterr().out == f"signed out of {url}\n"
    assert trio.run(FileTokens().keys) == []


def test_what_an_older_version_stored_is_named_and_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    url = "https://host.example/mcp"
    trio.run(FileTokens().save, url, '{"version": 0, "access_token": "CANARY"}')
    for words, status in ((["logins"], OK), (["login", url], NO_CONNECTION), (["list", url], NO_CONNECTION)):
        assert main(words) == status
        said = capfd.readouterr().err
        assert f"what is stored for {url} is" in said
        assert "trio-mcp logout" in said
        assert "CANARY" not in said
    assert main(["logout", "--all"]) == OK
    assert trio.run(FileTokens().keys) == []
