"""Other people's clients, with three of our processes behind nginx in place of one: the same tests, in both eras.

Each request goes to the next process, those of sessions, too. The processes share a file or an engine. Functions whose
questions wait in one process (`park_input`) are left out in the modern era.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import mcp
import pytest
import trio

from tests.conformance.suite import everything_front
from tests.conftest import places
from tests.round_robin import Front, Place, round_robin

from . import test_official_client
from .node_peers import NodePeers
from .support import DEADLINE, PEERS, marked_environment, python_peer
from .test_ext_tasks import test_its_session_gets_results_asks_fails_and_cancels  # noqa: F401
from .test_fastmcp_tasks import (  # noqa: F401
    fastmcp_tasks,
    test_its_client_gets_ordinary_calls_in_the_legacy_era,
    test_its_client_waits_for_tasks_holds_handles_answers_and_cancels,
)
from .test_inspector import (  # noqa: F401
    Inspector,
    inspector_of,
    test_everything_is_listed_and_the_tools_have_portable_schemas,
    test_tools_resources_and_prompts_give_what_they_hold,
)
from .test_official_client import (  # noqa: F401
    Connect,
    runs_of,
    test_a_listener_hears_of_what_it_asked_for,
    test_a_page_to_visit_reaches_the_client,
    test_an_extension_and_its_method,
    test_an_interview_gives_the_same_answer_in_each_era,
    test_negotiation_results_and_errors,
    test_progress_logs_and_cancellation,
)
from .test_scripted_clients import (  # noqa: F401
    Session,
    session_of,
    test_it_learns_who_the_server_is_and_what_it_offers,
    test_results_arrive_whole_and_failures_as_what_they_are,
    test_the_session_outlives_every_failure_and_ends_with_its_client,
    test_what_a_call_brings_with_it,
)

pytestmark = [*test_official_client.pytestmark, pytest.mark.nginx]


@contextlib.contextmanager
def front_of(peer: str, place: Place) -> Iterator[Front]:
    """Run three processes of a server in peers/, which may complain only of the tool that crashes."""
    with marked_environment() as environment:
        launch = python_peer(peer, environment)
        with round_robin([launch.command, *launch.args], environment, place=place) as front:
            yield front
        assert front.said.count("Traceback") == front.said.count("ZeroDivisionError: a secret of the server")


@pytest.fixture(scope="module")
def fronts() -> Iterator[Callable[[Place], Front]]:
    """What starts the processes for a place once, although tests of both places alternate."""
    with contextlib.ExitStack() as started:
        yield cache(lambda place: started.enter_context(front_of("our_server", place)))


@pytest.fixture(scope="module", params=places())
def ours(request: pytest.FixtureRequest, fronts: Callable[[Place], Front]) -> Front:
    return fronts(request.param)


def forget_events(front: Front) -> None:
    """Let the tool `events` return only what happens from now on."""
    (front.folder / "events").unlink(missing_ok=True)


# --- the official Python SDK --------------------------------------------------------------------------------------


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def connect(mode: str, ours: Front) -> Connect:
    forget_events(ours)
    return partial(mcp.Client, ours.url, mode=mode)


@pytest.mark.parametrize("mode", ["legacy"])
async def test_a_parked_interview_runs_once_in_a_session(connect: Connect) -> None:
    """The answer to each question reaches the process that has asked."""
    assert await runs_of("parked_interview", connect) == 1


ITS_SERVER = """
import runpy, signal, sys
sys.stdout = sys.stderr  # where the first line is expected
signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn ends by the signal otherwise
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("official_http_server", run_name="__main__")
"""


async def test_its_own_sessions_do_not_survive_there() -> None:
    """A control: each of its servers keeps its sessions to itself, so the second request fails."""
    with marked_environment() as environment:
        command = [sys.executable, "-c", ITS_SERVER, str(PEERS), "events"]
        with (
            round_robin(command, environment) as front,
            trio.fail_after(DEADLINE),
            pytest.RaisesGroup(
                pytest.RaisesExc(mcp.MCPError, match="error response"), flatten_subgroups=True, allow_unwrapped=True
            ),
        ):
            async with mcp.Client(front.url, mode="legacy") as client:
                for _ in front.urls:
                    await client.list_tools()


# --- the TypeScript SDK -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["v1", "v2-legacy", "v2-auto", "v2-pinned"])
def session(request: pytest.FixtureRequest, npm: NodePeers, ours: Front) -> Session:
    forget_events(ours)
    with marked_environment() as environment:
        return session_of(request.param, npm.node, npm, environment, "HTTP", {"url": ours.url, "kind": "http"})


# --- clients of tasks: FastMCP, and the requester of ext-tasks ----------------------------------------------------


@pytest.fixture(scope="module", params=places(pytest.mark.long))
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with front_of("our_task_server", request.param) as front:
        yield front.url


@pytest.fixture
def transport(url: str) -> str:
    return url


# --- the inspector ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=places(pytest.mark.long))
def everything(request: pytest.FixtureRequest) -> Iterator[str]:
    with everything_front(request.param) as url:
        yield url


@pytest.fixture(params=["modern", "legacy"])
def inspector(
    npm: NodePeers, everything: str, environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Inspector:
    return inspector_of(npm, environment, tmp_path, request.param, everything)
