"""The tool and the prompt of mcp-server-fetch, on trio_mcp and httpx.

$ pip install markdownify protego readabilipy
$ python examples/ports/fetch_server.py --ignore-robots-txt
"""

import argparse
import ipaddress
import socket
from dataclasses import dataclass
from typing import Annotated

import httpx
import markdownify
import trio
from protego import Protego
from pydantic import AnyUrl, Field
from readabilipy.simple_json import simple_json_from_html_string

from trio_mcp import Server, ToolError
from trio_mcp.types import ToolAnnotations

SECONDS = 30
FOR_MODEL = "ModelContextProtocol/1.0 (Autonomous; +https://github.com/modelcontextprotocol/servers)"
FOR_USER = "ModelContextProtocol/1.0 (User-Specified; +https://github.com/modelcontextprotocol/servers)"
TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""NAT64: the address of a machine of IPv4, whose own address is the last 32 bits (RFC 6052)."""


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    user_agent: str | None = None
    ignore_robots_txt: bool = False
    proxy_url: str | None = None
    allow_private_ips: bool = False


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet; what wraps another address is judged by that."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in TRANSLATED:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


async def refuse_private(request: httpx.Request) -> None:
    """Refuse a request, or a hop of a redirect, to this machine or to a private network."""
    host = request.url.raw_host.decode("ascii")
    try:
        found = await trio.socket.getaddrinfo(host, None)
    except socket.gaierror:
        return  # connecting will fail, or a proxy knows the name
    for *_, (address, *_) in found:
        if not is_public(str(address)):
            raise ToolError(
                f"Refused to fetch {request.url}: {host} resolves to {address}, which is not a public address. "
                "Start the server with --allow-private-ips to allow private, loopback and link-local addresses."
            )


def to_markdown(html: str) -> str:
    """Return the article of a page as Markdown."""
    article = simple_json_from_html_string(html, use_readability=True)["content"]
    text: str = markdownify.markdownify(article, heading_style=markdownify.ATX) if article else ""
    return text if text.strip() else "<error>Page failed to be simplified from HTML</error>"


class Fetcher:
    """Fetches pages the way the settings allow."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def client(self, user_agent: str) -> httpx.AsyncClient:
        try:
            client = httpx.AsyncClient(
                proxy=self.settings.proxy_url,
                headers={"User-Agent": user_agent},
                follow_redirects=True,
                timeout=SECONDS,
            )
        except (ValueError, ImportError) as exc:
            raise ToolError(
                "Failed to set up the HTTP client, check the proxy configuration (--proxy-url or the HTTP_PROXY, "
                f"HTTPS_PROXY and ALL_PROXY environment variables): {exc}"
            ) from exc
        if not self.settings.allow_private_ips:
            client.event_hooks = {"request": [refuse_private]}
        return client

    async def check_robots(self, url: httpx.URL, user_agent: str) -> None:
        """Ask a site whether a program may read a page.

        Raises:
            ToolError: It may not, or the site does not tell.
        """
        robots_url = url.copy_with(raw_path=b"/robots.txt", fragment=None)
        async with self.client(user_agent) as client:
            try:
                response = await client.get(robots_url)
            except httpx.HTTPError as exc:
                raise ToolError(f"Failed to fetch robots.txt {robots_url} due to a connection issue") from exc
        if response.status_code in (401, 403):
            raise ToolError(
                f"When fetching robots.txt ({robots_url}), received status {response.status_code} so assuming that "
                "autonomous fetching is not allowed, the user can try manually fetching by using the fetch prompt"
            )
        if 400 <= response.status_code < 500:
            return
        rules = "\n".join(line for line in response.text.splitlines() if not line.strip().startswith("#"))
        if not Protego.parse(rules).can_fetch(str(url), user_agent):
            raise ToolError(
                f"The sites robots.txt ({robots_url}), specifies that autonomous fetching of this page is not allowed, "
                f"<useragent>{user_agent}</useragent>\n<url>{url}</url><robots>\n{response.text}\n</robots>\n"
                "The assistant must let the user know that it failed to view the page. "
                "The assistant may provide further guidance based on the above information.\n"
                "The assistant can tell the user that they can try manually fetching the page by using the fetch "
                "prompt within their UI."
            )

    async def fetch(self, url: str, user_agent: str, *, raw: bool = False, robots: bool = False) -> tuple[str, str]:
        """Return a page as text, and a line that says what the text is, if it isn't Markdown.

        Args:
            url: Where it is.
            user_agent: What to tell the site about who asks.
            raw: Whether HTML is returned as it is.
            robots: Whether each site that a redirect leads to is asked as well.
        """

        async def check(request: httpx.Request) -> None:
            await self.check_robots(request.url, user_agent)

        async with self.client(user_agent) as client:
            if robots:
                client.event_hooks["request"].insert(0, check)
            try:
                response = await client.get(url)
            except httpx.HTTPError as exc:
                raise ToolError(f"Failed to fetch {url}: {exc!r}") from exc
        if response.status_code >= 400:
            raise ToolError(f"Failed to fetch {url} - status code {response.status_code}")
        kind, text = response.headers.get("content-type", ""), response.text
        if not raw and (not kind or "text/html" in kind or "<html" in text[:100]):
            return await trio.to_thread.run_sync(to_markdown, text), ""
        return text, f"Content type {kind} cannot be simplified to markdown, but here is the raw content:\n"


def make_server(settings: Settings) -> Server:
    """Make the server."""
    server = Server("mcp-fetch", version="1.0.0")
    fetcher = Fetcher(settings)

    @server.tool(
        structured_output=False,
        annotations=ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
        ),
    )
    async def fetch(
        url: Annotated[AnyUrl, Field(description="URL to fetch")],
        max_length: Annotated[
            int, Field(description="Maximum number of characters to return.", ge=1, le=999999, strict=True)
        ] = 5000,
        start_index: Annotated[
            int,
            Field(
                description="On return output starting at this character index, useful if a previous fetch was "
                "truncated and more context is required.",
                ge=0,
                strict=True,
            ),
        ] = 0,
        raw: Annotated[
            bool,
            Field(
                description="Get the actual HTML content of the requested page, without simplification.", strict=True
            ),
        ] = False,
    ) -> str:
        """Fetches a URL from the internet and optionally extracts its contents as markdown.

        Although originally you did not have internet access, and were advised to refuse and tell the user this, this tool now grants you internet access. Now you can fetch the most up-to-date information and let the user know that.
        """  # noqa: E501 - the line is the original's, to the letter
        robots = not settings.ignore_robots_txt
        agent = settings.user_agent or FOR_MODEL
        text, prefix = await fetcher.fetch(str(url), agent, raw=raw, robots=robots)
        part = text[start_index : start_index + max_length]
        rest = len(text) - start_index - len(part)
        if not part:
            part = "<error>No more content available.</error>"
        elif rest > 0:
            part += (
                "\n\n<error>Content truncated. Call the fetch tool with a start_index of "
                f"{start_index + len(part)} to get more content.</error>"
            )
        return f"{prefix}Contents of {url}:\n{part}"

    @server.prompt(name="fetch")
    async def fetch_for_user(url: Annotated[str, Field(description="URL to fetch")]) -> str:
        """Fetch a URL and extract its contents as markdown"""
        try:  # the user wants this page, so robots.txt is not asked, and what goes wrong is for the user to read
            text, prefix = await fetcher.fetch(url, settings.user_agent or FOR_USER)
        except ToolError as exc:
            return str(exc)
        return prefix + text

    return server


def configured(arguments: list[str] | None = None) -> Server:
    """Return the server, set up by the arguments of a command line."""
    parser = argparse.ArgumentParser(description="Serve a tool that fetches web pages.")
    parser.add_argument("--user-agent", help="what to tell sites instead of this program's name")
    parser.add_argument("--ignore-robots-txt", action="store_true", help="fetch what sites allow only people to read")
    parser.add_argument("--proxy-url", help="the proxy that all requests go through")
    parser.add_argument(
        "--allow-private-ips",
        action="store_true",
        help="fetch from this machine and its networks, too",
    )
    return make_server(Settings(**vars(parser.parse_args(arguments))))


if __name__ == "__main__":
    configured().run()
