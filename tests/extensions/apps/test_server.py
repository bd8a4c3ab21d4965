"""Apps on a server: pages, tools that name them, and what is refused when it starts (SEP-1865, 2026-01-26)."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trio_mcp import CacheHint, Client, Context, Server, types
from trio_mcp.extensions import Apps, Csp

from .views import ERAS, client_of, clock

MIME = "text/html;profile=mcp-app"


@pytest.mark.parametrize("era", ERAS)
async def test_a_page_is_a_resource_of_its_own_type_with_its_policy_on_entry_and_contents(era: str) -> None:
    """SEP-1865, Content Requirements: "`mimeType` MUST be `text/html;profile=mcp-app`", "URI MUST start with `ui://`",
    "Content MUST be provided via either `text` (string) or `blob` (base64-encoded)"."""
    ui = {
        "csp": {"connectDomains": ["https://time.example"]},
        "permissions": {"camera": {}},
        "prefersBorder": True,
    }
    async with client_of(clock(), mode=era) as client:
        (entry,) = [each for each in await client.list_resources() if each.uri.startswith("ui://")]
        (contents,) = (await client.read_resource("ui://clock/face")).contents
        declared = client.extensions["io.modelcontextprotocol/ui"]
    assert (entry.mime_type, entry.meta, entry.name) == (MIME, {"ui": ui}, "face")
    assert entry.description == "The face of a clock."
    assert isinstance(contents, types.TextResourceContents)
    assert (contents.mime_type, contents.meta) == (MIME, {"ui": ui})
    assert contents.text == "<!doctype html><p>clock</p>"
    assert declared == {}


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_names_its_page_and_its_audience_and_the_server_hides_nothing(era: str) -> None:
    """SEP-1865, Resource Discovery. Visibility is enforced by hosts."""
    async with Client(clock(), mode=era) as client:
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
    assert tools == {
        "show": {"ui": {"resourceUri": "ui://clock/face"}},
        "never": {"ui": {"resourceUri": "ui://clock/face"}},
        "fails": {"ui": {"resourceUri": "ui://clock/face"}},
        "now": {"ui": {"visibility": ["app"]}},
        "secret": {"ui": {"visibility": ["model"]}},
        "plain": None,
    }


async def test_the_metadata_of_a_tool_itself_stays_beside_that_of_the_extension() -> None:
    apps = Apps()
    server = Server("s", extensions=[apps])
    apps.page("ui://a")(lambda: "")

    @server.tool(app="ui://a", visibility=["app", "model", "app"], meta={"com.example/x": 1})
    def tool() -> str:
        return ""

    async with Client(server) as client:
        (listed,) = await client.list_tools()
    assert listed.meta == {"com.example/x": 1, "ui": {"resourceUri": "ui://a", "visibility": ["app", "model"]}}
    with pytest.raises(ValueError, match="'ui' is set by an extension"):
        server.add_tool(tool, name="other", app="ui://a", meta={"ui": {}})


@pytest.mark.parametrize("era", ERAS)
async def test_a_function_sees_whether_the_client_of_its_request_shows_pages(era: str) -> None:
    """SEP-1865, Server Behavior: the client must have declared the type."""
    server = Server("s")

    @server.tool
    def renders(ctx: Context) -> bool:
        return ctx.client_renders_apps

    async def ask(**settings: Any) -> Any:
        async with Client(server, mode=era, **settings) as client:
            return (await client.call_tool("renders")).data

    assert await ask(extensions=[Apps()]) is True
    assert await ask() is False
    for declared in ({}, {"mimeTypes": ["text/plain"]}, {"mimeTypes": MIME}, {"mimeTypes": None}):
        assert await ask(extensions={"io.modelcontextprotocol/ui": declared}) is False, declared


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_of_a_tool_with_a_page_keeps_content_for_clients_without_pages(era: str) -> None:
    """SEP-1865, Graceful Degradation: "Tools MUST return meaningful content array even when UI is available"."""
    apps = Apps()
    server = Server("s", extensions=[apps])
    apps.page("ui://a")(lambda: "")

    def result() -> types.CallToolResult:
        return types.CallToolResult(content=[], structured_content={"hour": 3})

    server.add_tool(result, name="with_page", app="ui://a")
    server.add_tool(result, name="without")
    server.add_tool(lambda: {"hour": 4}, name="structured", app="ui://a")
    async with Client(server, mode=era) as client:
        assert (await client.call_tool("with_page")).text == '{"hour":3}'
        assert (await client.call_tool("without")).content == []
        assert (await client.call_tool("structured")).text == '{"hour":4}'


@pytest.mark.parametrize("late", [False, True], ids=["page first", "server first"])
async def test_pages_may_be_added_before_or_after_the_server_and_serve_several(late: bool, tmp_path: Path) -> None:
    apps = Apps()
    servers = [] if late else [Server("a", extensions=[apps]), Server("b", extensions=[apps])]
    file = tmp_path / "face.html"
    file.write_text("<!doctype html>one")

    @apps.page("ui://a/async", title="A", description="D", name="n", domain="d", cache=CacheHint(ttl=60))
    async def page(ctx: Context) -> bytes:
        return f"<!doctype html>é{ctx.client_renders_apps}".encode()

    @apps.page("ui://a/latin")
    def latin() -> bytes:
        return b"<meta charset=latin1>\xe9"

    apps.page("ui://a/file", path=file)
    servers = servers or [Server("a", extensions=[apps]), Server("b", extensions=[apps])]
    for server in servers:
        async with client_of(server) as client:
            listed = {each.uri: each for each in await client.list_resources()}
            assert (listed["ui://a/async"].title, listed["ui://a/async"].description) == ("A", "D")
            assert listed["ui://a/async"].meta == {"ui": {"domain": "d"}}
            assert (listed["ui://a/file"].name, listed["ui://a/file"].meta) == ("face.html", None)
            read = await client.read_resource("ui://a/async")
            assert read.contents[0].text == "<!doctype html>éTrue"  # type: ignore[union-attr]
            assert read.ttl_ms == 60_000
            file.write_text("<!doctype html>two")
            assert (await client.read_resource("ui://a/file")).contents[0].text == "<!doctype html>two"  # type: ignore[union-attr]
            blob = (await client.read_resource("ui://a/latin")).contents[0].blob  # type: ignore[union-attr]
            assert base64.b64decode(blob) == b"<meta charset=latin1>\xe9"


async def test_a_page_that_returns_something_else_fails_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    apps = Apps()
    apps.page("ui://a")(lambda: 3)
    async with client_of(Server("s", extensions=[apps])) as client:
        with pytest.raises(Exception, match="the resource 'ui://a' failed"):
            await client.read_resource("ui://a")
    assert "must return HTML as str or bytes, got 3" in caplog.text


def _page(**details: Any) -> None:
    Apps().page("ui://a", **details)(lambda: "")


def _tool(**details: Any) -> None:
    Server("s", extensions=[Apps()]).add_tool(lambda: "", name="t", **details)


@pytest.mark.parametrize(
    ("make", "details", "error", "says"),
    [
        (_page, {"permissions": ["midi"]}, ValueError, "'midi' is not a permission; the permissions are camera"),
        (_page, {"permissions": "camera"}, TypeError, "permissions must be a list"),
        (_page, {"csp": {"connect": []}}, TypeError, "csp must be a Csp, got dict"),
        (_page, {"prefers_border": 1}, TypeError, "prefers_border"),
        (_page, {"domain": 1}, TypeError, "domain"),
        (_page, {"colour": "red"}, TypeError, "unexpected keyword argument 'colour'"),
        (_page, {"path": "/no/such/file"}, ValueError, "there is no file '/no/such/file'"),
        (_tool, {"app": "http://a"}, ValueError, "begins with 'ui://'"),
        (_tool, {"app": "ui://"}, ValueError, "begins with 'ui://'"),
        (_tool, {"app": "ui://{a}"}, ValueError, "begins with 'ui://'"),
        (_tool, {"app": 3}, TypeError, "must be a string"),
        (_tool, {"app": "ui://a", "visibility": "app"}, TypeError, 'must be a list such as \\["app"\\]'),
        (_tool, {"visibility": []}, ValueError, "must have some of 'model', 'app'"),
        (_tool, {"visibility": ["user"]}, ValueError, "must have some of 'model', 'app'"),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(make: Any, details: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make(**details)


@pytest.mark.parametrize("detail", [{"app": "ui://a"}, {"visibility": ["app"]}])
def test_a_server_without_the_extension_refuses_its_arguments(detail: Any) -> None:
    with pytest.raises(ValueError, match=r"needs the extension Apps: pass extensions=\[Apps\(\)\]"):
        Server("s").add_tool(lambda: "", name="t", **detail)


def test_the_uri_of_a_page_is_checked_and_taken_once() -> None:
    apps = Apps()
    with pytest.raises(ValueError, match="must be a URI that begins with 'ui://'"):
        apps.page("https://a")(lambda: "")
    apps.page("ui://a")(lambda: "")
    with pytest.raises(ValueError, match="already registered"):
        apps.page("ui://a")(lambda: "")


async def test_a_server_does_not_start_with_a_tool_whose_page_does_not_exist() -> None:
    """SEP-1865, Resource Discovery: "Resource MUST exist on the server"."""
    apps = Apps()
    server = Server("s", extensions=[apps])
    server.add_tool(lambda: "", name="t", app="ui://a")
    with pytest.raises(ValueError, match="the tool 't' has app='ui://a', but there is no such page"):
        async with Client(server):
            pass
    server.add_resource("ui://a", lambda: "", name="a", mime_type="text/html")
    with pytest.raises(ValueError, match="has the type 'text/html' and must have"):
        async with Client(server):
            pass
    server.remove_resource("ui://a")
    apps.page("ui://a")(lambda: "")
    async with Client(server) as client:
        assert len((await client.list_tools()).tools) == 1


async def test_a_server_does_not_start_with_a_tool_that_has_a_page_and_tells_the_model_nothing() -> None:
    """SEP-1865, Graceful Degradation, as above; a tool that only pages call may return nothing."""

    def nothing() -> None: ...

    apps = Apps()
    apps.page("ui://a")(lambda: "")
    server = Server("s", extensions=[apps])
    server.add_tool(nothing, name="for_pages", app="ui://a", visibility=["app"])
    async with Client(server) as client:
        assert (await client.call_tool("for_pages")).content == []
    server.add_tool(nothing, name="for_both", app="ui://a")
    with pytest.raises(ValueError, match="the tool 'for_both' has a page and returns None"):
        async with Client(server):
            pass


async def test_the_pages_of_a_mounted_server_are_found() -> None:
    outer, inner = Server("outer", extensions=[Apps()]), clock()
    outer.mount(inner, prefix="c")
    async with client_of(outer) as client:
        assert "c__show" in [tool.name for tool in await client.list_tools()]
        assert (await client.read_resource("ui://clock/face")).contents


@pytest.mark.parametrize(
    "origin",
    [
        "https://a; script-src *",
        "https://a.example 'unsafe-eval'",
        "https://a.example\nX: y",
        "https://a.example\n",
        "https://a.example,https://b.example",
        "'self'",
        "*",
        "https://*",
        "https://*.com",
        "https://a.*.example",
        "https:",
        "data:",
        "//a.example",
        "a.example",
        "https://a.example/",
        "https://a.example/path",
        "https://user@a.example",
        "https://a.example:99999999",
        "https://é.example",
        "https://[::1]",
        "javascript://a",
        "",
        "https://" + "a" * 400,
        3,
    ],
)
def test_an_origin_that_could_end_its_directive_is_refused(origin: Any) -> None:
    """Each of the four lists takes the same origins, and none that has more than scheme, host and port."""
    for field in ("connect", "resources", "frames", "base_uris"):
        with pytest.raises((ValueError, TypeError), match="not a valid origin"):
            Csp(**{field: [origin]})


def test_proper_origins_are_taken() -> None:
    origins = ["https://a.example", "http://localhost:3000", "wss://*.a.example:8443", "https://127.0.0.1", "ws://a"]
    assert Csp(connect=origins).to_wire() == {"connectDomains": origins}
    with pytest.raises(TypeError, match="must be a list"):
        Csp(connect="https://a.example")
    with pytest.raises(ValueError, match="101 origins; 100 is the limit"):
        Csp(connect=["https://a.example"] * 101)


def test_nobody_loads_the_extension_who_does_not_use_it() -> None:
    program = (
        "import sys, trio_mcp; from trio_mcp.extensions import Apps; from trio_mcp import Server;"
        "known = lambda: sorted(each for each in sys.modules if each.startswith('trio_mcp.extensions.apps.'));"
        "Server('s').add_tool(lambda: '', name='t'); print(known());"
        "server = Server('s', extensions=[Apps()]); print(known())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = run.stdout.splitlines()
    assert first == "['trio_mcp.extensions.apps.extension']"
    assert "host" not in second
