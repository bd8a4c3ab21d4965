"""A client on the official Python SDK 2 that signs in, and calls each tool a few times.

Usage: python_sign_in.py legacy|auto URL. `ts_sign_in.mjs` is the same in TypeScript.
"""

import sys
import warnings
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

warnings.simplefilter("ignore")  # the SDK warns of what 2026-07-28 deprecates
MODE, URL = sys.argv[1:]
DOCUMENT = "https://client.example/metadata.json"


class Person:
    """The person at the client, whose browser is redirected at once, and the store of the client."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info

    async def browse(self, url):
        async with httpx2.AsyncClient() as browser:
            self.location = (await browser.get(url)).headers["Location"]

    async def come_back(self):
        return AuthorizationCodeResult(**dict(parse_qsl(urlsplit(self.location).query)))


async def main():
    person = Person()
    wanted = OAuthClientMetadata(redirect_uris=["http://127.0.0.1:8765/callback"], client_name="python-v2")
    provider = OAuthClientProvider(URL, wanted, person, person.browse, person.come_back, client_metadata_url=DOCUMENT)
    async with (
        httpx2.AsyncClient(auth=provider) as http,
        Client(streamable_http_client(URL, http_client=http), mode=MODE) as client,
    ):
        for tool in (await client.list_tools()).tools:
            for _ in range(3):
                with anyio.move_on_after(1):
                    try:
                        await client.call_tool(tool.name, {})
                    except Exception as error:
                        print(repr(error), file=sys.stderr)


anyio.run(main)
