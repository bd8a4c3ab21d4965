"""The differences between revisions, as named facts: code that serves a request asks for the fact, not the revision.

The fields of each revision are not listed here: the models of `trio_mcp.types` declare them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from trio_mcp.types.error_codes import INVALID_PARAMS, RESOURCE_NOT_FOUND_LEGACY

__all__ = ["Rules", "rules_of", "rules_of_owner"]


# This is a NamedTuple, so that `_replace` can derive the rules of one revision from those of another.
class Rules(NamedTuple):
    """The rules of one revision. Each reference is to the first revision to which the fact applies.

    Attributes:
        revision: The revision.
        modern: Each request declares what the server needs to know; there is no handshake (2026-07-28
            `basic/versioning`). Other attributes describe the consequences.
        cache_hints: Results say for how long they may be cached (2026-07-28 `server/utilities/caching`).
        input_in_results: The server asks for input in a result, and the client sends it with the next request; in
            earlier revisions the server sends requests (2026-07-28 `basic/patterns/mrtr`).
        default_log_level: The lowest level of log messages for a client that has not set one; None for no messages at
            all (2026-07-28 `server/utilities/logging`, Per-request log level; until 2025-11-25 the server decides).
        missing_extension_error: A request that needs an extension which the client did not declare is refused with
            -32021, naming the extension (2026-07-28 `basic/index`, Per-request protocol fields); in earlier revisions
            its method is unknown.
        resource_not_found: The error code for an unknown resource (`server/resources`, Error Handling).
        completions_capability: Completion has a server capability (2025-03-26 `server/utilities/completion`).
        progress_messages: Progress notifications may have a ``message`` (2025-03-26 `basic/utilities/progress`).
        no_content: The types of content blocks that the revision lacks: audio came with 2025-03-26, resource links
            with 2025-06-18 (`server/tools`, Tool Result).
        structured_content: Tool results may have structured content, and tools may have a schema for it (2025-06-18
            `server/tools`, Structured Content).
        any_structured_content: Structured content may be any JSON value, not only an object (2026-07-28
            `server/tools`, Structured Content).
        completion_context: A completion request includes the other arguments (2025-06-18
            `server/utilities/completion`).
        client_capabilities: The capabilities with which a client declares what a server may ask of it (`client/roots`,
            `client/sampling`, `client/elicitation`, Capabilities).
        argument_errors_as_results: Invalid arguments to a tool give a tool result with an error, so that the model sees
            it (2025-11-25 `server/tools`, Error Handling).
        sampling_lists: Sampling messages may have several content blocks, and use tools (2025-11-25 `client/sampling`).
        choices_of_several: A form may have multiple-choice fields, and titles for choices (2025-11-25
            `client/elicitation`, Requested Schema).
        elicitation_modes: An elicitation says whether it is a form or a URL (2025-11-25 `client/elicitation`).
        elicitation_ids: An elicitation by URL has an id (2025-11-25 `client/elicitation`, URL Mode; removed in
            2026-07-28).
        primed_streams: An event stream begins with an event that has an id but no content, so that the client can
            resume (2025-11-25 `basic/transports`, Sending Messages). Clients of earlier revisions may treat an event
            without content as a broken message.
    """

    revision: str
    client_capabilities: frozenset[str]
    modern: bool = False
    cache_hints: bool = False
    input_in_results: bool = False
    default_log_level: str | None = "info"
    missing_extension_error: bool = False
    resource_not_found: int = RESOURCE_NOT_FOUND_LEGACY
    completions_capability: bool = True
    progress_messages: bool = True
    no_content: frozenset[str] = frozenset()
    structured_content: bool = True
    any_structured_content: bool = False
    completion_context: bool = True
    argument_errors_as_results: bool = True
    sampling_lists: bool = True
    choices_of_several: bool = True
    elicitation_modes: bool = True
    elicitation_ids: bool = True
    primed_streams: bool = True


# The three sets of capabilities with which clients allow a server to ask them something: from 2024-11-05, from
# 2025-06-18, and from 2025-11-25 on.
_ASKED_FIRST: Final = frozenset({"roots", "sampling"})
_ASKED_LATER: Final = _ASKED_FIRST | {"elicitation.form"}
_ASKED_NOW: Final = _ASKED_LATER | {"elicitation.url", "sampling.tools", "sampling.context"}

# The legacy rules are derived backwards from the newest revision: each revision is its successor without what the
# successor added. The defaults of `Rules` are the facts of 2025-11-25, from which 2026-07-28 is derived as well.
_2025_11_25: Final = Rules(revision="2025-11-25", client_capabilities=_ASKED_NOW)
_2025_06_18: Final = _2025_11_25._replace(
    revision="2025-06-18",
    client_capabilities=_ASKED_LATER,
    # Before 2025-11-25, invalid arguments cause a JSON-RPC error (-32602), which models don't see.
    argument_errors_as_results=False,
    sampling_lists=False,
    choices_of_several=False,
    elicitation_modes=False,
    primed_streams=False,
)
_2025_03_26: Final = _2025_06_18._replace(
    revision="2025-03-26",
    client_capabilities=_ASKED_FIRST,
    no_content=frozenset({"resource_link"}),
    structured_content=False,
    completion_context=False,
)
_2024_11_05: Final = _2025_03_26._replace(
    revision="2024-11-05",
    no_content=frozenset({"resource_link", "audio"}),
    completions_capability=False,
    progress_messages=False,
)
_2026_07_28: Final = _2025_11_25._replace(
    revision="2026-07-28",
    modern=True,
    # In the modern era the server keeps no state for a client, so each message carries what a session used to remember.
    cache_hints=True,
    input_in_results=True,
    default_log_level=None,
    missing_extension_error=True,
    resource_not_found=INVALID_PARAMS,
    any_structured_content=True,
    elicitation_ids=False,
)

_RULES: Final = {each.revision: each for each in (_2024_11_05, _2025_03_26, _2025_06_18, _2025_11_25, _2026_07_28)}

rules_of: Final[Callable[[str], Rules]] = _RULES.__getitem__
"""Return the rules of a revision; raise `KeyError` unless it is one of `trio_mcp.types.versions.REVISIONS`."""


def rules_of_owner(owner: Any) -> Rules:
    """Return the rules of an object's revision; classes use this as the default of their attribute ``rules``."""
    return rules_of(owner.revision)
