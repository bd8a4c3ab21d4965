"""How a server announces changes: ``basic/patterns/subscriptions``; before 2026-07-28 notifications of a session."""

from __future__ import annotations

from typing import Any

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import ALONE, LEGACY, MODERN, NotOverHttp, Topic
from trio_mcp import Server
from trio_mcp.jsonrpc.messages import ErrorResponse
from trio_mcp.types import meta

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
LISTS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
TOOLS, PROMPTS, RESOURCES = LISTS.values()
UPDATED = "notifications/resources/updated"
EVERYTHING = [TOOLS, PROMPTS, RESOURCES, UPDATED]


def server() -> Server:
    made = Server("listen")

    def nothing() -> str:
        """Do nothing."""
        return ""

    made.add_prompt(nothing)
    for uri in ("x://a", "x://b"):
        made.add_resource(uri, nothing)

    @made.tool
    async def change(what: str) -> None:
        """Announce a change of a list, or of the resource with this URI."""
        lists = {
            "tools": made.notify_tools_changed,
            "prompts": made.notify_prompts_changed,
            "resources": made.notify_resources_changed,
        }
        if what in lists:
            lists[what]()
        else:
            made.notify_resource_updated(what)

    @made.tool
    async def grow(kind: str) -> None:
        """Offer something more."""
        if kind == "tools":
            made.add_tool(nothing, name="more")
        elif kind == "prompts":
            made.add_prompt(nothing, name="more")
        elif kind == "resources":
            made.add_resource("x://more", nothing)
        else:
            made.add_resource("x://more/{+path}", file)

    @made.tool
    async def shrink() -> None:
        """Take something away."""
        made.remove_resource("x://b")

    def file(path: str) -> str:
        """Do nothing, with a path."""
        return path

    return made


topic = Topic("Changes", server)

OPENING = "basic/patterns/subscriptions#opening-a-stream"
FILTER = "basic/patterns/subscriptions#notification-filter"
ACKNOWLEDGMENT = "basic/patterns/subscriptions#acknowledgment"
RECEIVING = "basic/patterns/subscriptions#receiving-notifications"
CONCURRENT = "basic/patterns/subscriptions#multiple-concurrent-subscriptions"
CANCELLATION = "basic/patterns/subscriptions#cancellation"
NOTIFIED = NotOverHttp("over HTTP a subscription is a response, whose end is that of the subscription", MODERN)


async def listen(hand: Peer, request_id: Any = None, **wanted: Any) -> Any:
    """Open a stream, and return its id when it is acknowledged."""
    started = await hand.request("subscriptions/listen", {"notifications": wanted}, request_id=request_id)
    await hand.hear(ACKNOWLEDGED)
    return started


async def change(hand: Peer, *what: str) -> None:
    for each in what:
        await hand.call("change", {"what": each})


def told(hand: Peer) -> list[str]:
    return [each.method for each in hand.heard if each.method in EVERYTHING]


def _list(kind: str, flag: str) -> None:
    method = LISTS[flag]

    async def asked(case: Case) -> None:
        async with case.hand() as hand:
            started = await listen(hand, **{flag: True})
            await change(hand, kind)
            params = await hand.hear(method)
        assert params["_meta"][meta.SUBSCRIPTION_ID] == started

    async def grown(case: Case) -> None:
        async with case.hand() as hand:
            if case.modern:
                await listen(hand, **{flag: True})
            await hand.call("grow", {"kind": kind})
            await hand.hear(method)

    asked.__name__, grown.__name__ = f"{kind}_asked_for", f"{kind}_grown"
    topic.row(FILTER, f"Who asks for {flag} is told when the list of {kind} changes.", MODERN)(asked)
    topic.row(
        f"server/{kind}#list-changed-notification", f"When one of its {kind} is added, a server tells its clients."
    )(grown)


for _kind, _flag in (
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
):
    _list(_kind, _flag)


@topic.row(
    "server/resources#list-changed-notification",
    "When a template is added or a resource is removed, a server tells its clients.",
)
async def templates_and_removals(case: Case) -> None:
    async with case.hand() as hand:
        if case.modern:
            await listen(hand, resourcesListChanged=True)
        await hand.call("grow", {"kind": "templates"})
        await hand.hear(RESOURCES)
        await hand.call("shrink")
        await hand.hear(RESOURCES)


# --- subscriptions/listen ------------------------------------------------------------------------------------------


@topic.row(
    ACKNOWLEDGMENT, "The first message of a stream is its acknowledgement, which names the subscription.", MODERN
)
async def acknowledged_first(hand: Peer) -> None:
    started = await hand.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await change(hand, "tools")  # told or not: it may come before the request is looked at
    first = hand.heard[0].method if hand.heard else ACKNOWLEDGED  # else it is what comes next
    params = await hand.hear(ACKNOWLEDGED)
    assert first == ACKNOWLEDGED
    assert params["_meta"][meta.SUBSCRIPTION_ID] == started


@topic.row(ACKNOWLEDGMENT, "The acknowledgement says which part of the filter is honoured: no unknown kinds.", MODERN)
async def honored(hand: Peer) -> None:
    part = {"toolsListChanged": True, "resourceSubscriptions": ["x://a"]}
    wanted = {**part, "promptsListChanged": False, "moonPhase": True}
    await hand.request("subscriptions/listen", {"notifications": wanted})
    assert (await hand.hear(ACKNOWLEDGED))["notifications"] == part


@topic.row(OPENING, "Without a subscription, or with one to nothing, no notification is sent.", MODERN)
async def no_subscription(hand: Peer) -> None:
    for subscribed in (False, True):
        if subscribed:
            await listen(hand)
        await change(hand, "tools", "prompts", "resources", "x://a")
        await hand.result("tools/list")
        assert told(hand) == []
        assert len(hand.asked - hand.answered) == subscribed


@topic.row(OPENING, "Changes outside the filter are not announced.", MODERN)
async def not_asked_for(hand: Peer) -> None:
    await listen(hand, promptsListChanged=True)
    await change(hand, "tools", "resources", "x://a", "prompts")
    await hand.hear(PROMPTS)
    await hand.result("tools/list")
    assert told(hand) == []


@topic.row(FILTER, "A subscriber to a resource is notified of its updates, with its URI, and of no other's.", MODERN)
async def resource(hand: Peer) -> None:
    started = await listen(hand, resourceSubscriptions=["x://a"])
    await change(hand, "x://b", "x://a")
    params = await hand.hear(UPDATED)
    assert params["uri"] == "x://a"
    assert params["_meta"][meta.SUBSCRIPTION_ID] == started
    await hand.result("tools/list")
    assert told(hand) == []


for _text, _params in (
    ("subscriptions/listen without a filter is refused with -32602.", {}),
    ("A filter that is not an object is refused with -32602.", {"notifications": ["tools"]}),
    (
        "A flag of a filter that is neither true nor false is refused with -32602.",
        {"notifications": {"toolsListChanged": "yes"}},
    ),
    (
        "Resources in a filter that are not an array of strings are refused with -32602.",
        {"notifications": {"resourceSubscriptions": "x://a"}},
    ),
):
    topic.refuses(FILTER, _text, "subscriptions/listen", _params, revisions=MODERN)


@topic.row(
    RECEIVING,
    "A notification names its subscription by exactly the id of the request, even if that is a number.",
    MODERN,
)
async def id_of_a_subscription(hand: Peer) -> None:
    await listen(hand, request_id=7, toolsListChanged=True)
    await change(hand, "tools")
    found = (await hand.hear(TOOLS))["_meta"][meta.SUBSCRIPTION_ID]
    assert found == 7
    assert type(found) is int


@topic.row(CONCURRENT, "Each of several subscriptions gets what it asked for, under its own id.", MODERN)
async def several(hand: Peer) -> None:
    both, one = (
        await listen(hand, toolsListChanged=True, promptsListChanged=True),
        await listen(hand, toolsListChanged=True),
    )
    await change(hand, "tools")
    found = {(await hand.hear(TOOLS))["_meta"][meta.SUBSCRIPTION_ID] for _ in range(2)}
    assert found == {both, one}
    await change(hand, "prompts")
    assert (await hand.hear(PROMPTS))["_meta"][meta.SUBSCRIPTION_ID] == both


@topic.row(
    CANCELLATION, "A cancelled subscription is not answered and gets no further notifications.", MODERN, NOTIFIED
)
async def cancelled(hand: Peer) -> None:
    started = await listen(hand, toolsListChanged=True)
    await hand.cancel(started)
    await change(hand, "tools")
    await hand.result("tools/list")
    assert told(hand) == []
    assert started not in hand.answered


@topic.row(CANCELLATION, "Cancelling one subscription does not affect the others.", MODERN, NOTIFIED)
async def others_stay(hand: Peer) -> None:
    first, second = await listen(hand, toolsListChanged=True), await listen(hand, toolsListChanged=True)
    await hand.cancel(first)
    await change(hand, "tools")
    assert (await hand.hear(TOOLS))["_meta"][meta.SUBSCRIPTION_ID] == second


@topic.row(OPENING, "While a subscription is open, requests are served.", MODERN)
async def requests_beside(hand: Peer) -> None:
    started = await listen(hand, toolsListChanged=True)
    assert "tools" in await hand.result("tools/list")
    assert started not in hand.answered


@topic.row(
    OPENING, "A second subscription with the id of an open one is refused, and the first stays open.", MODERN, ALONE
)
async def id_in_use(hand: Peer) -> None:
    await listen(hand, request_id="s", toolsListChanged=True)
    await hand.request("subscriptions/listen", {"notifications": {"promptsListChanged": True}}, request_id="s")
    assert isinstance(await hand.answer("s"), ErrorResponse)
    await change(hand, "prompts", "tools")
    await hand.hear(TOOLS)
    assert told(hand) == []


# --- the session of the legacy era ------------------------------------------------------------------------------


@topic.row(
    "server/tools#list-changed-notification", "A session is told of changes of the lists without asking.", LEGACY
)
async def announced(hand: Peer) -> None:
    for kind, method in (("tools", TOOLS), ("prompts", PROMPTS), ("resources", RESOURCES)):
        await change(hand, kind)
        assert meta.SUBSCRIPTION_ID not in (await hand.hear(method)).get("_meta", {})


SUBSCRIPTIONS = "server/resources#subscriptions"


@topic.row(
    SUBSCRIPTIONS,
    "A client that has sent resources/subscribe is notified of updates of that resource, with its URI.",
    LEGACY,
)
async def subscribed(hand: Peer) -> None:
    await hand.result("resources/subscribe", {"uri": "x://a"})
    await change(hand, "x://b", "x://a")
    assert (await hand.hear(UPDATED))["uri"] == "x://a"
    await hand.result("ping")
    assert told(hand) == []


@topic.row(SUBSCRIPTIONS, "A session that has not subscribed to a resource is not notified of its updates.", LEGACY)
async def not_subscribed(hand: Peer) -> None:
    await change(hand, "x://a", "tools")
    await hand.hear(TOOLS)
    assert told(hand) == []


@topic.row(SUBSCRIPTIONS, "After resources/unsubscribe updates are no longer announced.", LEGACY)
async def unsubscribed(hand: Peer) -> None:
    for uri in ("x://a", "x://b"):
        await hand.result("resources/subscribe", {"uri": uri})
    await hand.result("resources/unsubscribe", {"uri": "x://a"})
    await change(hand, "x://a", "x://b")
    assert (await hand.hear(UPDATED))["uri"] == "x://b"
    await hand.result("ping")
    assert told(hand) == []


topic.held(
    """
    A server that ends answers each open subscription with a result first.
        basic/patterns/subscriptions#graceful-closure when_the_server_closes_each_subscription_gets_a_result modern
    Changes before the end are announced before it.
        basic/patterns/subscriptions#graceful-closure changes_before_the_close_are_told_before_it modern
    Capabilities that the server does not declare are left out of the acknowledgement.
        basic/patterns/subscriptions#acknowledgment topics_that_the_server_does_not_declare_are_not_honored modern
    A change while the acknowledgement waits to be sent is announced after it.
        basic/patterns/subscriptions#acknowledgment a_change_while_the_acknowledgement_waits_is_told_after_it modern
    The number of resources that one client watches is bounded.
        basic/patterns/subscriptions#notification-filter the_resources_that_one_client_watches_are_bounded modern
    """,
    tests="tests/server/test_listen.py::test_",
)
