"""URLs that peers name: tables of what is fetched, what covers what, and who can be reached."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trio_mcp._addresses import Reach, reach
from trio_mcp.auth.rules.urls import UrlPolicy, covers, is_loopback, origin, same_issuer
from trio_mcp.errors import AuthorizationError

PUBLIC, LOCAL = "https://mcp.example.com/mcp", "http://127.0.0.1:8000/mcp"


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://id.example.com", PUBLIC),
        ("https://id.example.com:8443/a/b?x=%2F", PUBLIC),
        ("HTTPS://ID.example.com/", PUBLIC),
        ("https://8.8.8.8/", PUBLIC),
        ("https://[2606:4700::1111]/", PUBLIC),
        ("https://id.example.com/", LOCAL),
        ("http://localhost:9000/authorize", LOCAL),
        ("http://127.0.0.2/", LOCAL),
        ("http://[::1]:9000/", "http://localhost/"),
        ("https://localhost/", LOCAL),
        # Found out when it is resolved: the server may be as private.
        ("https://10.0.0.1/", PUBLIC),
    ],
)
def test_urls_that_are_fetched(url: str, server: str) -> None:
    """Https anywhere; http where the MCP server is on loopback."""
    UrlPolicy().check(url, server, "token")


@pytest.mark.parametrize(
    ("url", "server", "why"),
    [
        ("http://id.example.com/", PUBLIC, "is not https"),
        ("http://id.example.com/", LOCAL, "is not https"),
        ("http://10.0.0.1/", "http://10.0.0.1/mcp", "is not https"),
        ("http://localhost/", PUBLIC, "leads to this machine"),
        ("https://localhost/", PUBLIC, "leads to this machine"),
        ("https://LOCALHOST/", PUBLIC, "leads to this machine"),
        ("https://127.1.2.3/", PUBLIC, "leads to this machine"),
        ("https://[::1]/", PUBLIC, "leads to this machine"),
        ("https://[::ffff:127.0.0.1]/", PUBLIC, "leads to this machine"),
        ("https://[0:0::ffff:7f00:1]/", PUBLIC, "leads to this machine"),
        ("https://[64:ff9b::7f00:1]/", PUBLIC, "leads to this machine"),
        ("https://169.254.169.254/latest/meta-data", PUBLIC, "is never allowed"),
        ("https://[::ffff:169.254.169.254]/", LOCAL, "is never allowed"),
        ("https://0.0.0.0/", LOCAL, "is never allowed"),
        ("https://[::]/", LOCAL, "is never allowed"),
        ("http://127.1/", LOCAL, "is not https"),
        ("http://0x7f000001/", LOCAL, "is not https"),
        ("http://localhost.evil.example/", LOCAL, "is not https"),
        ("http://localhost./", LOCAL, "is not https"),
        ("file:///etc/passwd", LOCAL, "is not an https or http URL"),
        ("javascript:alert(1)", PUBLIC, "is not an https or http URL"),
        ("data:text/html,x", PUBLIC, "is not an https or http URL"),
        ("ftp://id.example.com/", PUBLIC, "is not an https or http URL"),
        ("wss://id.example.com/", PUBLIC, "is not an https or http URL"),
        ("ms-word:ofe|u|https://id.example.com", PUBLIC, "is not an https or http URL"),
        ("//id.example.com/", PUBLIC, "is not an https or http URL"),
        ("/authorize", PUBLIC, "is not an https or http URL"),
        ("", PUBLIC, "characters"),
        ("https://user:secret@id.example.com/", PUBLIC, "a user name"),
        ("https://id.example.com@evil.example/", PUBLIC, "a user name"),
        ("https://id.example.com/#x", PUBLIC, "a fragment"),
        ("https://id.example.com/#", PUBLIC, "a fragment"),
        ("https://evil.example\\@id.example.com/", PUBLIC, "characters"),
        ("https://id.example.com/\r\nHost: evil.example", PUBLIC, "characters"),
        ("https://id.example.com/ x", PUBLIC, "characters"),
        (" https://id.example.com/", PUBLIC, "characters"),
        ("https://id.exämple.com/", PUBLIC, "characters"),
        ("https://\uff4cocalhost/", PUBLIC, "characters"),
        ("https://id%2eexample.com/", PUBLIC, "no valid host"),
        ("https:///x", PUBLIC, "no valid host"),
        ("https://:443/", PUBLIC, "no valid host"),
        ("https://[fe80::1%25eth0]/", PUBLIC, "no valid host"),
        ("https://[::1/", PUBLIC, "no valid host"),
        ("https://[1.2.3.4]/", PUBLIC, "no valid host"),
        ("https://id.example.com:99999/", PUBLIC, "no valid port"),
        ("https://id.example.com:0/", PUBLIC, "no valid port"),
        ("https://id.example.com:x/", PUBLIC, "no valid host"),
        ("https://id.example.com/" + "a" * 8000, PUBLIC, "is longer than 8000"),
    ],
)
def test_urls_that_are_refused(url: str, server: str, why: str) -> None:
    """Each at its step, with the reason; a long one is not shown whole."""
    with pytest.raises(AuthorizationError, match=why) as caught:
        UrlPolicy().check(url, server, "token")
    assert caught.value.step == "token"
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    """Nothing else happens, whichever function looks at it."""
    try:
        UrlPolicy().check(text, PUBLIC, "token")
    except AuthorizationError:
        pass
    assert not covers(text, PUBLIC) or text.lower().startswith(("https://mcp.example.com", "wss://mcp.example.com"))
    is_loopback(text)
    reach(text)


ADDRESSES = {
    Reach.GLOBAL: "1.1.1.1 8.8.8.8 93.184.215.14 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1",
    Reach.PRIVATE: "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 198.18.0.5 fd00::1 ::ffff:10.0.0.1"
    " 64:ff9b::a00:1 2002:a00:1::1",
    Reach.LOOPBACK: "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::"
    " 2001:0:4136:e378:8000:63bf:80ff:fffe",
    Reach.NEVER: "0.0.0.0 0.1.2.3 169.254.169.254 fe80::1 fe80::1%eth0 224.0.0.1 240.0.0.1 255.255.255.255 :: ff02::1"
    " ff0e::1 fec0::1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: 192.0.2.1 203.0.113.1 2001:db8::1"
    " 64:ff9b:1::1 100::1 ::127.0.0.1 ::7f00:1 nonsense 127.1 0x7f.1 2130706433",
}


@pytest.mark.parametrize(
    ("expected", "address"), [(kind, each) for kind, them in ADDRESSES.items() for each in them.split()]
)
def test_reach(expected: Reach, address: str) -> None:
    """From where an address can be reached, whatever it is wrapped in."""
    assert reach(address) is expected


@pytest.mark.parametrize(
    ("address", "near", "allowed"),
    [
        ("8.8.8.8", "1.1.1.1", True),
        ("8.8.8.8", "127.0.0.1", True),
        ("8.8.8.8", "", True),
        ("10.0.0.1", "", False),
        ("10.0.0.1", "1.1.1.1", False),
        ("10.0.0.1", "192.168.0.1", True),
        ("10.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "192.168.0.1", False),
        ("127.0.0.1", "::1", True),
        # A server that adds one of our addresses to its own gains nothing by it.
        ("10.0.0.1", "1.1.1.1 10.0.0.1", False),
        ("127.0.0.1", "127.0.0.1 1.1.1.1", False),
        ("169.254.169.254", "169.254.169.254", False),
        ("169.254.169.254", "127.0.0.1", False),
        # The metadata of a cloud is never asked for, although its address may be one of a private network.
        ("100.100.100.200", "127.0.0.1", False),
        ("fd00:ec2::254", "10.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", False),
        ("::ffff:10.0.0.1", "1.1.1.1", False),
        ("nonsense", "127.0.0.1", False),
    ],
)
def test_addresses(address: str, near: str, allowed: bool) -> None:
    """An address is global, or no more private than the MCP server's own."""
    url = "https://id.example.com/token"
    with contextlib.nullcontext() if allowed else pytest.raises(AuthorizationError, match=re.escape(f"({address})")):
        UrlPolicy().check_address(url, address, near.split(), "token")


@pytest.mark.parametrize(
    "hosts",
    ["id.corp.example", ["https://id.corp.example"], ["id.corp.example:8080"], [""]],
    ids=["a string", "a URL", "a port", "empty"],
)
def test_hosts_that_would_never_be_met(hosts: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^(each entry in )?hosts must be "):
        UrlPolicy(hosts=hosts)


def test_hosts_that_are_trusted() -> None:
    """They may use http and private addresses, but not those of a cloud's metadata; other hosts get nothing of it."""
    policy = UrlPolicy(hosts=["Id.corp.example"])
    url = "http://id.corp.example:8080/token"
    policy.check(url, PUBLIC, "token")
    policy.check_address(url, "10.0.0.1", ["1.1.1.1"], "token")
    for metadata in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "168.63.129.16"):
        with pytest.raises(AuthorizationError):
            policy.check_address(url, metadata, ["1.1.1.1"], "token")
    with pytest.raises(AuthorizationError, match=r"leads to an address that is never allowed$"):
        UrlPolicy(hosts=["169.254.169.254"]).check("https://169.254.169.254/", PUBLIC, "token")
    for host in ("2606:4700::1111", "fd00:0::1", "FD00::1"):  # an address however it is written
        UrlPolicy(hosts=[host]).check(f"http://[{host.lower()}]/token", PUBLIC, "token")
    for other in ("http://id.corp.example.evil.example/", "file://id.corp.example/etc/passwd"):
        with pytest.raises(AuthorizationError):
            policy.check(other, PUBLIC, "token")


def test_the_advice_names_the_setting() -> None:
    """A host that is refused for where it is can be allowed by name."""
    with pytest.raises(AuthorizationError, match=r"urls=UrlPolicy\(hosts=\['id.corp.example'\]\)"):
        UrlPolicy().check("http://id.corp.example/", PUBLIC, "token")


@pytest.mark.parametrize(
    ("resource", "server", "expected"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp/", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp/", True),
        ("https://a.example", "https://a.example/", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://a.example/", "https://a.example/x/mcp", True),
        ("https://a.example/x", "https://a.example/x/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp?tenant=1", True),
        ("https://a.example/mcp?tenant=1", "https://a.example/mcp?tenant=1", True),
        ("HTTPS://A.example:443/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp", "wss://a.example/mcp", True),
        ("https://a.example/mcp?tenant=2", "https://a.example/mcp?tenant=1", False),
        ("https://a.example/x?tenant=1", "https://a.example/x/mcp?tenant=1", False),
        ("https://a.example/mc", "https://a.example/mcp", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("https://a.example/MCP", "https://a.example/mcp", False),
        ("https://a.example/%6dcp", "https://a.example/mcp", False),
        ("https://a.example//", "https://a.example/mcp", False),
        ("https://a.example/x/..", "https://a.example/x/../mcp", False),
        ("https://a.example/x/%2E%2e", "https://a.example/x/%2E%2e/mcp", False),
        ("http://a.example/mcp", "https://a.example/mcp", False),
        ("https://a.example:444/mcp", "https://a.example/mcp", False),
        ("https://b.example/mcp", "https://a.example/mcp", False),
        ("https://a.example.evil.example/mcp", "https://a.example/mcp", False),
        ("https://a.example@evil.example/mcp", "https://a.example/mcp", False),
        ("https://a.example/mcp#x", "https://a.example/mcp", False),
        ("a.example/mcp", "https://a.example/mcp", False),
        ("urn:a", "https://a.example/mcp", False),
        ("", "https://a.example/mcp", False),
    ],
)
def test_resources(resource: str, server: str, expected: bool) -> None:
    """A resource is the server, or a parent of it by whole segments."""
    assert covers(resource, server) is expected


@pytest.mark.parametrize(
    ("advertised", "published", "expected"),
    [
        ("https://a.example", "https://a.example", True),
        ("https://a.example/", "https://a.example", True),
        ("https://a.example/t", "https://a.example/t/", True),
        ("https://a.example//", "https://a.example", False),
        ("https://A.example", "https://a.example", False),
        ("https://a.example:443", "https://a.example", False),
        ("https://a.example/%74", "https://a.example/t", False),
        ("https://a.example", "https://a.example?", False),
    ],
)
def test_issuers(advertised: str, published: str, expected: bool) -> None:
    """One slash at the end is all that two issuers may differ by."""
    assert same_issuer(advertised, published) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://A.example:443/x?y", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("http://a.example:443/", "http://a.example:443"),
        ("wss://a.example:444/", "https://a.example:444"),
        ("http://[0:0:0:0:0:0:0:1]:80/", "http://[::1]"),
    ],
)
def test_origins(url: str, expected: str) -> None:
    """The same origin has one spelling."""
    assert origin(url) == expected
