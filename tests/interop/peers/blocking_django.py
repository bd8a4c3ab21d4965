"""Serve a Django view that calls an MCP server, from many threads at once; print what the responses were."""

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.test import Client as Browser
from django.urls import path

from trio_mcp.blocking import Client

clients: list[Client] = []


def add(request: HttpRequest) -> JsonResponse:
    """Add two numbers by each of the servers."""
    numbers = {name: int(value) for name, value in request.GET.items()}
    return JsonResponse({"sums": [client.call_tool("add", numbers).data for client in clients]})


urlpatterns = [path("add", add)]


def main(targets: list[str]) -> None:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only here")
    django.setup()

    def visit(number: int) -> Any:
        response = Browser().get(f"/add?a={number}&b=1")
        return response.status_code, response.json() == {"sums": [number + 1] * len(targets)}

    with ThreadPoolExecutor(16) as pool:
        clients.extend(Client(target) for target in targets)
        for client in clients:
            client.__enter__()
        seen = Counter(pool.map(visit, range(200)))
        for client in clients:
            client.close()
    print(json.dumps([[*key, times] for key, times in seen.items()]))


if __name__ == "__main__":
    main(sys.argv[1:])
