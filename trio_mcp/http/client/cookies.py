"""The cookies of a client over HTTP: a balancer may know by one which server holds the session."""

from __future__ import annotations

from http.cookiejar import Cookie, CookieJar
from typing import Final

__all__ = ["BoundedCookies"]

MAX_COOKIES: Final = 50
MAX_COOKIE: Final = 4096
"""Characters of a name and its value. Both limits are those of RFC 6265, section 6.1."""


class BoundedCookies(CookieJar):
    """Cookies that can't become more and more. One that is too long is not kept; those over the limit end them all."""

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep a cookie."""
        if len(cookie.name) + len(cookie.value or "") > MAX_COOKIE:
            return
        if len(self) >= MAX_COOKIES:
            self.clear()
        super().set_cookie(cookie)
