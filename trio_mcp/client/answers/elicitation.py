"""Answer a server that asks the user something (`client/elicitation`)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel

from trio_mcp._checks import check_choices, check_hook
from trio_mcp.convert import as_json, as_object, call_back
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.schema.forms import Form
from trio_mcp.schema.validator import SchemaError
from trio_mcp.types._base import class_span, field_span
from trio_mcp.types.capabilities import ElicitationCapability
from trio_mcp.types.elicitation import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["ElicitationCallback", "ElicitationMode", "ElicitationSource"]

ElicitationMode = Literal["form", "url"]
MODES: tuple[ElicitationMode, ...] = ("form", "url")
# 2025-11-25 `client/elicitation`, Response Actions.
ACTIONS = ("accept", "decline", "cancel")

ElicitParams: TypeAlias = ElicitRequestFormParams | ElicitRequestURLParams
ElicitAnswer: TypeAlias = ElicitResult | Mapping[str, Any] | BaseModel | Literal["accept", "decline", "cancel"] | None
# The parameter is Any so that a callback for a single mode may be annotated with that mode's parameters.
ElicitationCallback: TypeAlias = Callable[[Any], Awaitable[ElicitAnswer] | ElicitAnswer]


class ElicitationSource:
    """The source of a user's answers: the callback ``elicitation=`` of `Answers`.

    Args:
        callback: Takes the parameters of each request, and returns the answer.
        modes: The modes that the callback handles.

    Raises:
        TypeError: If the callback is not callable.
        ValueError: If a mode does not exist, or the collection is empty.
    """

    def __init__(self, callback: ElicitationCallback, modes: Collection[ElicitationMode] = MODES) -> None:
        check_hook("elicitation", callback)
        check_choices("elicitation_modes", modes, MODES)
        if not modes:
            raise ValueError("elicitation_modes must not be empty")
        self._callback = callback
        self._modes = tuple(mode for mode in MODES if mode in modes)

    def capability(self, revision: str) -> dict[str, Any] | None:
        """Return the capability that the client declares in a revision, or None if there is nothing to declare."""
        if revision not in class_span(ElicitationCapability):
            return None
        named = [mode for mode in self._modes if revision in field_span(ElicitationCapability, mode).revisions]
        # In revisions before 2025-11-25 modes have no names, and an empty capability declares forms.
        return {mode: {} for mode in named} if named or "form" in self._modes else None

    def prepare(self, params: ElicitParams, plain: dict[str, Any], revision: str) -> Callable[[], Awaitable[Any]]:
        """Check a request; return the function that asks the user.

        Raises:
            RemoteProtocolError: If the server may not ask this question.
        """
        # A request without a mode is for a form: earlier revisions had no other mode, and in later ones it is the
        # default (`client/elicitation`).
        mode: ElicitationMode = params.mode or "form"
        declared = self.capability(revision)
        # An empty capability declares forms, and servers understand it in this way.
        if declared is None or mode not in (declared or ("form",)):
            raise RemoteProtocolError(f"this client does not support elicitation in {mode} mode", INVALID_PARAMS)
        if isinstance(params, ElicitRequestURLParams):
            _check_url(params.url)
            return functools.partial(self._ask, params, None)
        try:
            form = Form(plain["requestedSchema"])
        except SchemaError as exc:
            raise RemoteProtocolError(f"the requested schema can't be used: {exc}", INVALID_PARAMS) from None
        return functools.partial(self._ask, params, form)

    async def _ask(self, params: ElicitParams, form: Form | None) -> dict[str, Any]:
        given = _result(await call_back(self._callback, params))
        answer: dict[str, Any] = {"action": given.action}
        if given.meta is not None:
            answer["_meta"] = given.meta
        if given.action != "accept":
            return answer
        content = as_json(dict(given.content or {}), "the answer")
        # The content of a form is checked before it is sent. A page has no content to check.
        if form is not None:
            answer["content"] = _checked(form, content)
        elif content:
            raise ValueError(
                "the answer to an elicitation in url mode must not have content: what the user enters on the page does "
                "not pass through the client"
            )
        return answer


def _checked(form: Form, content: dict[str, Any]) -> dict[str, Any]:
    # Defaults are filled in first: a field left out may be a required one that has a default.
    filled = form.filled(content)
    try:
        problem = form.problem(filled)
    except SchemaError as exc:
        raise ValueError(f"the answer can't be checked against the requested schema: {exc}") from None
    if problem is not None:
        raise ValueError(f"the answer does not match the requested schema: {problem}")
    return filled


def _result(given: object) -> ElicitResult:
    if isinstance(given, ElicitResult):
        return given
    if given is None:
        # A callback that returns nothing must never count as consent.
        return ElicitResult(action="decline")
    if isinstance(given, str) and given in ACTIONS:
        return ElicitResult(action=given)  # type: ignore[arg-type]
    if isinstance(given, (Mapping, BaseModel)):
        return ElicitResult(action="accept", content=as_object(given, "the answer"))
    raise TypeError(
        "the elicitation callback must return an ElicitResult, the content as a mapping or a model, None to decline, "
        f"or one of {', '.join(ACTIONS)}; got {type(given).__name__}"
    )


def _check_url(url: str) -> None:
    """Accept only URLs that a browser opens as a page, not those that run code or read files (Safe URL Handling)."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    # Spaces and unprintable characters could make the shown URL look like another one.
    if not good or not url.isprintable() or " " in url:
        raise RemoteProtocolError("an elicitation in url mode must contain a valid http or https URL", INVALID_PARAMS)
