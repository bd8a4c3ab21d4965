"""Makes HTTP exchanges with servers that a peer names: only with allowed addresses, and limited in size and time."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urljoin, urlsplit

import trio

from trio_mcp._addresses import Reach, reach
from trio_mcp._nursery import closing
from trio_mcp._version import __version__
from trio_mcp.auth.rules.steps import Fetch, Fetched, Flow
from trio_mcp.auth.rules.urls import UrlPolicy, same_origin
from trio_mcp.errors import AuthorizationError, Disconnected, MessageTooLarge
from trio_mcp.http.client.proxies import proxy_of
from trio_mcp.http.client.sending.on_httpx import disconnected, parts_of, response_of, trusting
from trio_mcp.http.client.sending.sender import HttpResponse
from trio_mcp.http.headers import JSON, MAX_URL, shown

if TYPE_CHECKING:
    import httpx  # noqa: ASYNC127 - imported on use: it takes a moment

__all__ = ["FetchFunction", "Fetcher", "Network", "drive"]

MAX_EXCHANGES: Final = 12
"""How many exchanges a flow may make, redirections included.

An arbitrary choice: the longest flow with an honest server makes nine.
"""
FLOW_TIMEOUT: Final = 60.0
"""How many seconds the exchanges of a flow may take in total."""
TIMEOUT: Final = 10.0
"""How many seconds one exchange may take, redirections included."""
MAX_REDIRECTS: Final = 3
MAX_ADDRESSES: Final = 3
"""How many addresses of a host are tried. An arbitrary choice: with more, too little of `TIMEOUT` is left for each."""

_REDIRECTIONS: Final = frozenset({301, 302, 303, 307, 308})

FetchFunction: TypeAlias = Callable[[Fetch], Awaitable[Fetched]]
"""A function that makes one HTTP exchange for a flow."""

ResultT = TypeVar("ResultT")


class Network:
    """The network as a fetcher uses it: proxies, name resolution and transports."""

    def proxy(self, url: str) -> str | None:
        """Return the proxy that the environment or the system configures for a URL, if any."""
        return proxy_of(url)

    async def resolve(self, host: str, flags: int = 0) -> list[str]:
        """Return the addresses of a host, in order of preference.

        Raises:
            OSError: If the host can't be resolved.
        """
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def transport(self, proxy: str | None) -> httpx.AsyncBaseTransport:
        """Return an httpx transport for one exchange, through a proxy if one is given."""
        import httpx  # noqa: ASYNC127 - not every client needs it; it is always installed

        return httpx.AsyncHTTPTransport(verify=trusting(), proxy=proxy)


class Fetcher:
    """Makes the HTTP exchanges of authorization flows.

    The fetcher itself resolves a host name and checks the addresses, and the connection goes to one of the checked
    addresses, so it makes no difference if the name resolves to other addresses later. Behind a proxy, the proxy
    resolves names.

    Args:
        trusted: The URL that the program configured: the MCP server's for a client, the issuer's for a resource server.
            Other URLs may lead to addresses that are as local as those of this URL (private, loopback), but not to more
            local ones.
        urls: Which URLs are allowed.
        network: The network to use; the real one by default.
    """

    def __init__(self, trusted: str, urls: UrlPolicy | None = None, *, network: Network | None = None) -> None:
        self._trusted = trusted
        self._urls = UrlPolicy() if urls is None else urls
        self._network = Network() if network is None else network
        self._near: list[str] | None = None

    def flow(self) -> FetchFunction:
        """Return a function that makes the exchanges of one flow: up to 12, within 60 seconds in total.

        The time between exchanges, when a person may be asked, does not count. If an exchange is refused or fails, the
        function raises an `AuthorizationError` with the ``step`` of the `Fetch`.
        """
        return _Flow(self).fetch

    async def exchange(self, fetch: Fetch, url: str) -> Fetched:
        """Make one exchange, without following a redirection and without a deadline.

        Raises:
            AuthorizationError: If the exchange is refused, or fails.
        """
        # Each exchange checks its URL, rather than the flow once, so that the targets of redirections are checked, too.
        self._urls.check(url, self._trusted, fetch.step)
        try:
            proxy = self._network.proxy(url)
            addresses = await self._addresses(fetch.step, url, proxied=proxy is not None)
            return await self._through(fetch, url, proxy, addresses)
        except (OSError, ValueError, ImportError) as exc:
            # A proxy's URL may be malformed (`ValueError`), or the proxy may need httpx's package for SOCKS
            # (`ImportError`).
            raise _failed(fetch, url, f"{type(exc).__name__}: {exc}") from None

    async def _addresses(self, step: str, url: str, *, proxied: bool) -> Sequence[str | None]:
        """Return the addresses to connect to, all of them checked; None means the name itself, for a proxy."""
        host = urlsplit(url).hostname or ""
        try:
            # A proxy resolves host names itself. But a numeric address is resolved in this process even behind a proxy,
            # because there are many ways to write it (decimal, octal, short).
            found = await self._network.resolve(host, socket.AI_NUMERICHOST if proxied else 0)
        except (OSError, UnicodeError) as exc:
            if proxied:
                return [None]
            text = exc.strerror if isinstance(exc, OSError) else "it is not a valid host name"
            raise AuthorizationError(step, f"the host {shown(host)} can't be resolved: {text}") from None
        allowed: list[str] = []
        refusal: AuthorizationError | None = None
        for address in found:
            try:
                # The addresses of the trusted server matter only if this address is not public, so few flows resolve
                # that server's name.
                near = [] if reach(address) is Reach.GLOBAL else await self._addresses_nearby()
                self._urls.check_address(url, address, near, step)
                allowed.append(address)
            except AuthorizationError as exc:
                refusal = exc
        # A host name may have both allowed and refused addresses; only the allowed ones are used.
        if refusal is not None and not allowed:
            raise refusal
        return allowed[:MAX_ADDRESSES]

    async def _addresses_nearby(self) -> list[str]:
        # The host name is resolved only once, so a server that rebinds the name later gains nothing.
        if self._near is None:
            try:
                self._near = await self._network.resolve(urlsplit(self._trusted).hostname or "")
            except (OSError, UnicodeError):
                self._near = []
        return self._near

    async def _through(self, fetch: Fetch, url: str, proxy: str | None, addresses: Sequence[str | None]) -> Fetched:
        import httpx  # noqa: ASYNC127 - not every client needs it; it is always installed

        failures, content = parts_of(httpx)
        try:
            named = httpx.URL(url)
        except httpx.InvalidURL as exc:
            raise _failed(fetch, url, str(exc)) from None
        fields = {
            # The URL of the request contains an address, so this field has to carry the host name.
            "Host": named.netloc.decode("ascii"),
            "User-Agent": f"trio-mcp/{__version__}",
            "Accept": JSON,
            **fetch.fields,
            # No compression is accepted, because a compressed body may expand to a thousand times its size before any
            # limit on its length applies.
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        # The certificate has to be valid for the host name, whichever address is used.
        extensions = {
            "sni_hostname": named.raw_host.decode("ascii"),
            # Each address gets a share of the time, so that one that never responds leaves time for the next.
            "timeout": {"connect": TIMEOUT / max(1, len(addresses))},
        }
        target = f"{fetch.method} {_shown(url)}"
        for number, address in enumerate(addresses, 1):
            where = named if address is None else named.copy_with(host=address)
            request = httpx.Request(fetch.method, where, headers=fields, content=fetch.body, extensions=extensions)
            # The stream is replaced, because httpx would read its own with an async generator, which outlives a
            # cancellation.
            request.stream = content(fetch.body, None)
            transport = self._network.transport(proxy)
            async with closing(transport.aclose):
                try:
                    response = await transport.handle_async_request(request)
                except failures as exc:
                    # The next address is tried only if no connection was made: a request that was sent may have used up
                    # a code or a refresh token.
                    if number < len(addresses) and isinstance(exc, (httpx.ConnectError, httpx.ConnectTimeout)):
                        continue
                    raise AuthorizationError(fetch.step, str(disconnected(exc, target))) from None
                return await _read(fetch, url, response_of(response, target, failures))
        raise _failed(fetch, url, "its host has no address")


class _Flow:
    """The exchanges of one flow, counted and timed."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._exchanges = 0
        self._seconds = FLOW_TIMEOUT

    async def fetch(self, fetch: Fetch) -> Fetched:
        began = trio.current_time()
        seconds = min(TIMEOUT, self._seconds)
        try:
            with trio.move_on_after(seconds):
                return await self._following(fetch)
        finally:
            # The time of a failed exchange counts, too, or a server could hold up a sign-in by failing slowly.
            self._seconds = max(0.0, self._seconds - (trio.current_time() - began))
        raise _failed(fetch, fetch.url, f"no complete response arrived within {seconds:.0f} seconds")

    async def _following(self, fetch: Fetch) -> Fetched:
        url = fetch.url
        for _ in range(MAX_REDIRECTS + 1):
            self._exchanges += 1
            if self._exchanges > MAX_EXCHANGES:
                raise _failed(
                    fetch,
                    url,
                    f"the request was not sent, because {MAX_EXCHANGES} HTTP exchanges have been made already",
                )
            found = await self._fetcher.exchange(fetch, url)
            location = found.headers.get("Location")
            # Only a GET follows redirections: a POST carries a code, a token or a secret, which must not be sent
            # wherever the server points.
            if fetch.method != "GET" or found.status not in _REDIRECTIONS or location is None:
                return found
            url = _redirected(fetch, url, location)
        raise _failed(fetch, fetch.url, f"redirected more than {MAX_REDIRECTS} times")


async def drive(flow: Flow[ResultT], act: Callable[[Any], Awaitable[Any]]) -> ResultT:
    """Run a flow to its end, and return its result.

    Args:
        flow: The flow.
        act: Carries out a step, and returns the outcome. An exception from it is raised in the flow.
    """
    outcome, failure = None, None
    try:
        while True:  # noqa: ASYNC913 - carrying out a step is up to `act`
            step = flow.send(outcome) if failure is None else flow.throw(failure)
            outcome, failure = None, None
            try:
                outcome = await act(step)
            except Exception as error:
                # The error is raised in the flow, which may recover from it: metadata may be in several places, and a
                # poll for a device's tokens may fail a few times.
                failure = error
    except StopIteration as done:
        result: ResultT = done.value
        return result
    finally:
        flow.close()


def _redirected(fetch: Fetch, url: str, location: str) -> str:
    try:
        target = urljoin(url, location) if len(location) <= MAX_URL else ""
    except ValueError:
        target = ""
    # After a redirection from https to http, anyone on the network could change the metadata.
    if not target or (url.lower().startswith("https:") and not target.lower().startswith("https:")):
        raise _failed(fetch, url, f"the redirection to {shown(location)} is not followed")
    if fetch.same_origin and not same_origin(target, url):
        raise _failed(fetch, url, f"the redirection to {shown(location)} leads to another origin")
    return target


async def _read(fetch: Fetch, url: str, response: HttpResponse) -> Fetched:
    async with closing(response.aclose):
        coding = response.headers.get("Content-Encoding") or "identity"
        if coding.lower() != "identity":
            raise _failed(fetch, url, f"the response is encoded as {shown(coding)}, which the request did not accept")
        # Content-Length and Transfer-Encoding together suggest response splitting or smuggling (RFC 9112, section 6.3).
        if response.has_two_ends:
            raise _failed(fetch, url, "the response has both Content-Length and Transfer-Encoding")
        try:
            body = await response.body(fetch.limit)
        except MessageTooLarge:
            raise _failed(fetch, url, f"the response has more than {fetch.limit} bytes") from None
        except Disconnected as exc:
            raise AuthorizationError(fetch.step, str(exc)) from None
        return Fetched(response.status, response.headers, body)


def _failed(fetch: Fetch, url: str, problem: str) -> AuthorizationError:
    return AuthorizationError(fetch.step, f"{fetch.method} {_shown(url)}: {problem}")


def _shown(url: str) -> str:
    """Return a URL for a message, without the query, which may be secret."""
    return shown(url.partition("?")[0])
