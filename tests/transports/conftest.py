"""What the tests of the transports choose by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trio_mcp.http.client import wire as http_wire


@pytest.fixture(scope="module", params=["transports", "client"])
def every_sender(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test runs on the transports that a link has by default, and on the client that goes through proxies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_wire, "_has_proxy", lambda url: request.param == "client")
        yield
