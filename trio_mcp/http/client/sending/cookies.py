"""Keeps cookies, within limits: a load balancer may use a cookie to find the server that holds a session."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.message import Message
from http.cookiejar import Cookie, CookieJar
from typing import Any, Final
from urllib.request import Request

__all__ = ["BoundedCookies", "cookie_for", "keep_cookies"]

MAX_COOKIES: Final = 50
MAX_COOKIE: Final = 4096
"""The maximum number of characters in the name and value of a cookie together.

This limit and `MAX_COOKIES` are those of RFC 6265, section 6.1.
"""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class BoundedCookies(CookieJar):
    """A bounded cookie jar: cookies that are too large or can't be sent are ignored.

    If there are `MAX_COOKIES` already, a further cookie first clears the jar. A cookie with a control character other
    than the tab would make every later request fail; RFC 6265, section 4.1.1, allows no such character.
    """

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep a cookie, unless it is too large or can't be sent; if the jar is full, clear it first."""
        # The server sets the cookies, so without limits a server could make every request ever larger.
        text = cookie.name + (cookie.value or "")
        if len(text) > MAX_COOKIE or _CONTROL.search(text) is not None:
            return
        if len(self) >= MAX_COOKIES:
            self.clear()
        super().set_cookie(cookie)


class _Response:
    """A response in the form that a cookie jar expects: `info` returns the header fields."""

    def __init__(self, values: Iterable[str]) -> None:
        self._message = Message()
        for value in values:
            self._message["Set-Cookie"] = value

    def info(self) -> Message:
        return self._message


def keep_cookies(jar: CookieJar, url: str, values: Iterable[str]) -> None:
    """Keep the cookies that a server has set with ``Set-Cookie``."""
    response: Any = _Response(values)
    jar.extract_cookies(response, Request(url))


def cookie_for(jar: CookieJar, url: str) -> str | None:
    """Return the value of the ``Cookie`` field for a request to a URL, or None if no cookie applies."""
    request = Request(url)
    jar.add_cookie_header(request)
    return request.get_header("Cookie")
