"""Makes a client's HTTP exchanges with one server: headers, authorization, and redirections.

This module knows nothing of MCP. Redirections within the origin are followed; others are returned like any response.
The package `sending` sends the requests.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import urljoin, urlsplit

from trio_mcp._checks import as_written
from trio_mcp._nursery import closing
from trio_mcp.errors import TransportError
from trio_mcp.http.client.auth import Attempt, Auth, Signer, opened
from trio_mcp.http.client.origins import origin_of
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.client.proxies import proxy_of
from trio_mcp.http.client.sending.http1 import Http1Sender
from trio_mcp.http.client.sending.sender import AsyncHttpClient, HttpResponse, Sender, Written
from trio_mcp.http.headers import MAX_URL, shown

__all__ = ["HttpWire", "http_wire"]

MAX_REDIRECTS: Final = 5  # the limit that RFC 2068, section 10.3, once recommended
MAX_REFUSAL: Final = 64 * 1024
"""How many bytes of a refusal's body are kept while the client obtains another authorization. An arbitrary choice."""
REFUSAL_TIMEOUT: Final = 5.0
"""How many seconds the body of a refusal may take to arrive.

An arbitrary choice: the body is only needed for an error message.
"""

_FOLLOWED: Final[dict[str, frozenset[int]]] = {
    "GET": frozenset({301, 302, 303, 307, 308}),
    # Only these statuses keep the method and the body (RFC 9110, section 15.4).
    "POST": frozenset({307, 308}),
}
# These statuses ask for an authorization, or for a different one (RFC 9110, section 15.5).
_REFUSED: Final = frozenset({401, 403})
_LOCATION: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]*")

Held: TypeAlias = Callable[[bool], object]
"""A function that is called with True before a request waits for its authorization, and with False after that wait."""


def _shown(url: str) -> str:
    """Return a URL for a message, without the parts that may be secret: the query and a password."""
    parts = urlsplit(as_written(url))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".removeprefix("://")


class HttpWire:
    """Makes HTTP exchanges with one origin.

    Args:
        sender: Sends the requests.
        parameters: The default URL, and the headers of each request.
        signer: Authorizes the requests.

    Attributes:
        url: The default URL.
        shown: The default URL as it appears in messages, without the parts that may be secret.
        authorizes: Whether each request gets an ``Authorization`` that one of its own would conflict with.
    """

    def __init__(self, sender: Sender, parameters: HttpServerParameters, signer: Signer | None = None) -> None:
        self._sender = sender
        self._signer = signer
        # Compression is not accepted: a body may unpack to a thousand times its size before any limit applies.
        own = [*sender.fields, *parameters.headers.items(), ("Accept-Encoding", "identity")]
        # The keys are in lower case: names of fields are case-insensitive (RFC 9110, section 5.1), and later fields
        # replace earlier ones.
        self._own = {name.lower(): (name, value) for name, value in own}
        self.url = parameters.url
        self.shown = _shown(self.url)
        self.authorizes = signer is not None or sender.authorizes or "@" in urlsplit(self.url).netloc

    @contextlib.asynccontextmanager
    async def exchange(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes = b"",
        *,
        url: str | None = None,
        written: Written | None = None,
        held: Held | None = None,
        own: Mapping[str, str] | None = None,
    ) -> AsyncIterator[HttpResponse]:
        """Send a request, and yield the response as soon as its head has arrived.

        If the exchange is cancelled, or the block is left before the body has ended, the connection is closed.
        `written` is called once all of the request has been handed to the connection. `held` is called with True before
        the request waits for its authorization, while the server has nothing to carry out, and with False before the
        request is sent. `own` are further fields that the caller of this one request has given, with names in lower
        case; `headers` take precedence over them, and no cookie of the response is kept, as it may belong to them.

        Raises:
            AuthorizationError: If the server asks for an authorization that could not be obtained.
            Disconnected: If the connection could not be made, or broke, whether before or within the block.
            TransportError: If a hook of the caller's client failed, or the response can't be read.
        """
        url = self.url if url is None else url
        fields = dict(self._own)
        if own is not None:
            fields |= {name: (name, value) for name, value in own.items()}
        for name, value in headers.items():
            fields[name.lower()] = name, value
        attempt = None if self._signer is None else self._signer.attempt()
        redirections = 0
        # A redirected request carries the caller's credentials again, so only redirections within the origin are
        # followed (`_redirection`).
        while True:
            signed = fields if attempt is None else await _signed(fields, attempt, method, url, held)
            target = f"{method} {self.shown if url == self.url else _shown(url)}"
            response = await self._sender.send(method, url, signed, content, written, target, keeps_cookies=own is None)
            response.asked = signed
            try:
                packed = response.headers.get("Content-Encoding") or "identity"
                if packed.lower() != "identity":
                    raise TransportError(
                        f"the response to {response.target} has a body encoded as {shown(packed)}, although only"
                        " identity is accepted"
                    )
                # A response whose length is stated twice may be an attempt at response splitting or smuggling (RFC
                # 9112, section 6.3).
                if response.has_two_ends:
                    raise TransportError(
                        f"the response to {response.target} has both Content-Length and Transfer-Encoding, which"
                        " leaves it unclear where it ends"
                    )
                # A redirection beyond the limit is a response like any other, which the caller reports.
                elsewhere = None
                if redirections < MAX_REDIRECTS and response.status in _FOLLOWED.get(method, ()):
                    elsewhere = _redirection(url, response)
                    redirections += 1
                elif attempt is not None and await _again(response, attempt, held):
                    elsewhere = url
                if elsewhere is None:
                    yield response
            except BaseException:
                async with closing(response.aclose):
                    raise
            # No exception is being raised that closing could replace, so closing may raise one. A response that
            # redirects or refuses the request is closed at this point, too.
            await response.aclose()
            if elsewhere is None:
                return
            url = elsewhere


async def _signed(
    fields: dict[str, tuple[str, str]], attempt: Attempt, method: str, url: str, held: Held | None
) -> dict[str, tuple[str, str]]:
    """Return the fields of a request together with those that authorize it."""
    if held is not None:
        held(True)
    given = await attempt.fields(method, url)
    if held is not None:
        held(False)
    return fields | {name.lower(): (name, value) for name, value in given}


async def _again(response: HttpResponse, attempt: Attempt, held: Held | None) -> bool:
    """Return whether to send a request once more, with another authorization."""
    if response.status in _REFUSED:
        # A person may take minutes to authorize the client, so the body is read now: the body may still be needed after
        # that time.
        await response.keep(MAX_REFUSAL, REFUSAL_TIMEOUT)
        if held is not None:
            held(True)
    return await attempt.again(response.status, response.headers)


def _redirection(url: str, response: HttpResponse) -> str | None:
    """Return the URL of a redirection to follow; None for another origin, which must not get our credentials."""
    location = response.headers.get("Location") or ""
    # A control character would get into error messages, which show the URL of a request.
    if len(location) > MAX_URL or not _LOCATION.fullmatch(location):
        return None
    try:
        target = urljoin(url, location)
        return target if origin_of(target) == origin_of(url) and target != url else None
    except ValueError:
        return None


# --- a wire ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def http_wire(
    url: str, headers: Mapping[str, str] | None, http_client: AsyncHttpClient | None, auth: Auth | None = None
) -> AsyncIterator[HttpWire]:
    """Open an `HttpWire` on the given HTTP client, which is not closed, or on a new sender.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is invalid.
    """
    parameters = HttpServerParameters(url, headers=headers or {}, auth=auth)
    # The authorization is opened first and closed last, because even ending a session takes a request.
    async with opened(auth, parameters.url) as signer, _sending(parameters.url, http_client) as sender:
        yield HttpWire(sender, parameters, signer)


@contextlib.asynccontextmanager
async def _sending(url: str, http_client: AsyncHttpClient | None) -> AsyncIterator[Sender]:
    if http_client is None and (proxy := proxy_of(url)) is None:
        sender = Http1Sender(url)
        try:
            yield sender
        finally:
            sender.close()
        return
    # httpx is imported only now: most links don't need it.
    from trio_mcp.http.client.sending.on_httpx import HttpxSender, proxied_sender

    if http_client is not None:
        yield HttpxSender(http_client)
    else:
        async with proxied_sender(proxy) as sender_through_proxy:
            yield sender_through_proxy
