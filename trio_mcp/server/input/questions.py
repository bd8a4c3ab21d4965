"""Makes questions to the client: those for its user (elicitation), and the one for its roots; `rounds` sends them."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_seconds, check_text
from trio_mcp.eras.capabilities import declares
from trio_mcp.eras.rules import Rules, rules_of
from trio_mcp.errors import LocalProtocolError, McpError
from trio_mcp.types.error_codes import MISSING_REQUIRED_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED
from trio_mcp.types.versions import LATEST_LEGACY

if TYPE_CHECKING:  # few servers ask, so the wire types of questions are loaded when one does
    from trio_mcp.types.roots import Root

__all__ = [
    "Accepted",
    "Cancelled",
    "Declined",
    "Elicited",
    "InputRequest",
    "QuestionContext",
    "UrlElicitationRequired",
    "ask_form",
    "ask_roots",
    "ask_url",
    "can_be_asked",
    "missing_capability",
    "no_asking",
]

T = TypeVar("T")
DataT = TypeVar("DataT", covariant=True)
ModelT = TypeVar("ModelT", bound=BaseModel)

_FORM, _URL = "elicitation.form", "elicitation.url"


class Asking(Protocol):
    """The part of `Rounds` that a question uses."""

    async def ask(self, requests: tuple[InputRequest[Any], ...]) -> list[Any]:
        """Return the answers to some questions, asked in one round."""


class QuestionContext(Protocol):
    """The part of a `Context` that a question uses."""

    @property
    def protocol_version(self) -> str: ...

    @property
    def rules(self) -> Rules: ...

    @property
    def client_capabilities(self) -> dict[str, Any]: ...

    @property
    def asking(self) -> Asking:
        """The rounds of input that questions are asked in.

        Raises:
            LocalProtocolError: If the client can't be asked now.
        """


# The actions are those of an `ElicitResult` (`client/elicitation`, Response Actions).
@attrs.frozen
class Accepted(Generic[DataT]):
    """The user has answered a question.

    Attributes:
        data: The answers, as an instance of the form's model; None for a page (`Context.elicit_url`).
        action: ``"accept"``.
    """

    data: DataT
    action: Literal["accept"] = attrs.field(default="accept", init=False, repr=False)


@attrs.frozen
class Declined:
    """The user has said no to a question.

    Attributes:
        action: ``"decline"``.
        data: None.
    """

    action: Literal["decline"] = attrs.field(default="decline", init=False, repr=False)
    data: None = attrs.field(default=None, init=False, repr=False)


@attrs.frozen
class Cancelled:
    """The user dismissed the question without making a choice, for example by closing the form.

    Unlike `trio.Cancelled`, this cancels nothing.

    Attributes:
        action: ``"cancel"``.
        data: None.
    """

    action: Literal["cancel"] = attrs.field(default="cancel", init=False, repr=False)
    data: None = attrs.field(default=None, init=False, repr=False)


Elicited: TypeAlias = Accepted[DataT] | Declined | Cancelled
"""The user's reaction to a question: check ``action``, or use ``isinstance`` or ``match``."""


# This is a Coroutine only for `trio.from_thread.run` and `start_soon`: see the end of the class.
class InputRequest(Coroutine[Any, Any, T]):
    """A question to the client, made by `Context.elicit`, `Context.sample` and so on; asked when awaited.

    Await it for the answer, or pass it to `Context.gather`.

    Attributes:
        method: The method of the question.
        key: The key that the handler has chosen, or None.
        timeout: Seconds to wait for the answer, or None.
        elicitation_id: The id of a page for the user to visit (2025-11-25); None for other questions.
    """

    def __init__(
        self,
        context: QuestionContext,
        method: str,
        needs: tuple[str, ...],
        params: Callable[[str], dict[str, Any] | None],
        read: Callable[[Any], T],
        key: str | None,
        timeout: float | None,
        elicitation_id: str | None = None,
    ) -> None:
        if key is not None:
            check_text("key", key)
        check_seconds("timeout", timeout, optional=True)
        self.method = method
        self.key = key
        self.timeout = timeout
        self.elicitation_id = elicitation_id
        self._context = context
        self._needs = needs
        self._params = params
        self._read = read
        self._running: Coroutine[Any, Any, T] | None = None
        self._forgotten = True

    # This is the value until `__init__` has finished: if it raises, `__del__` must not warn.
    _forgotten = False

    def take(self) -> InputRequest[T]:
        """Record that the question is being asked, or was dropped on purpose; return the question."""
        self._forgotten = False
        return self

    # Python warns about a coroutine that is never awaited, but the coroutine of a question is made only on first use,
    # so this method gives the warning.
    def __del__(self) -> None:
        if self._forgotten:
            warnings.warn(
                f"a question ({self.method}) was never asked: await it, or pass it to ctx.gather",
                RuntimeWarning,
                stacklevel=2,
            )

    def check(self, context: QuestionContext) -> None:
        """Refuse a question whose capability the client has not declared, or that its revision does not define.

        Raises:
            McpError: If a capability is missing (-32021, with the capability in its data).
        """
        for capability in self._needs:
            if not can_be_asked(context, capability):
                raise missing_capability(capability)
        self.wire(context.protocol_version)  # raises if the revision can't express the question

    def wire(self, revision: str) -> dict[str, Any]:
        """Return the question as plain data: its method and parameters.

        Raises:
            McpError: If the revision can't express the question.
        """
        # A question without params (roots/list) has no such member: JSON-RPC 2.0, section 4, allows omitting it, but
        # not null.
        params = self._params(revision)
        return {"method": self.method} if params is None else {"method": self.method, "params": params}

    def read(self, answer: Any) -> T:
        """Turn an answer, given as plain data, into the value that the handler gets.

        Raises:
            pydantic.ValidationError: If ``answer`` is not an answer to this question.
        """
        return self._read(answer)

    async def _ask(self) -> T:
        self.take()
        answer: T
        (answer,) = await self._context.asking.ask((self,))
        return answer

    def __await__(self) -> Generator[Any, Any, T]:
        return self._ask().__await__()

    # `trio.from_thread.run(ctx.elicit, …)` and `start_soon` accept only coroutines, so the methods below are the
    # interface of one. The real coroutine is made on first use: one that is never awaited would cause a warning, and a
    # question that is passed to `gather` is never awaited itself.

    def _coroutine(self) -> Coroutine[Any, Any, T]:
        if self._running is None:
            self._running = self._ask()
        return self._running

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(self, *details: Any) -> Any:
        return self._coroutine().throw(*details)

    def close(self) -> None:
        self.take()
        if self._running is not None:
            self._running.close()


class UrlElicitationRequired(McpError):
    """Raised by a function that can't continue before the user has visited some pages.

    A client of 2025-11-25 gets the error -32042 with the pages, and calls again when the user has visited them. A
    client of the modern era is asked as with `InputRequired`. A client of an earlier revision gets -32021.

    Args:
        requests: The pages, as made by ``ctx.elicit_url(…)``, not awaited.

    Raises:
        TypeError: If an argument is not such a request, or none is given.
    """

    def __init__(self, *requests: InputRequest[Any]) -> None:
        if not requests or not all(isinstance(each, InputRequest) and each.elicitation_id for each in requests):
            raise TypeError("UrlElicitationRequired takes one or more requests from ctx.elicit_url(…), without await")
        # The pages are written as in the only revision with this error; other clients get another response.
        pages = [each.take().wire(LATEST_LEGACY)["params"] for each in requests]
        super().__init__(
            URL_ELICITATION_REQUIRED,
            "the user must visit a page before the request can continue",
            {"elicitations": pages},
        )
        self.requests = requests


def missing_capability(capability: str, why: str | None = None) -> McpError:
    """Make the error -32021: the client has not declared a capability that the request needs.

    See 2026-07-28 `basic/index`, Per-request protocol fields.
    """
    required: dict[str, Any] = {}  # nested by the parts of the path: {"sampling": {"tools": {}}}
    inner = required
    for name in capability.split("."):
        inner[name] = inner = {}
    text = f"this request needs the client capability {capability!r}, which the client has not declared"
    return McpError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        text if why is None else f"{text}: {why}",
        {"requiredCapabilities": required},
    )


def no_asking(method: str) -> LocalProtocolError:
    """Make the error for a question that is asked where the client can't be asked."""
    return LocalProtocolError(
        f"can't ask the client here (in the context of a {method!r} request): only a running tool, prompt or resource "
        "function, or a provider that it depends on, may ask the client"
    )


def can_be_asked(context: QuestionContext, capability: str) -> bool:
    """Return whether a client has declared a capability that its revision defines."""
    # A capability that the client's revision does not define doesn't count, even if it is declared.
    if capability not in context.rules.client_capabilities:
        return False
    declared = context.client_capabilities
    if capability != _FORM:
        return declares(declared, capability)
    # For backwards compatibility, a declaration without either mode means forms (`client/elicitation`, Capabilities).
    return declares(declared, "elicitation") and (
        declares(declared, "elicitation.form") or not declares(declared, "elicitation.url")
    )


def _elicited(action: Literal["accept", "decline", "cancel"], data: Callable[[], DataT]) -> Elicited[DataT]:
    if action == "accept":
        return Accepted(data())
    return Declined() if action == "decline" else Cancelled()


def _check_message(message: object) -> None:
    if not isinstance(message, str):
        raise TypeError(f"message must be a string, got {type(message).__name__}")


def ask_form(
    context: QuestionContext, message: str, model: type[ModelT], key: str | None, timeout: float | None
) -> InputRequest[Elicited[ModelT]]:
    """Make a question with a form; see `Context.elicit`."""
    from trio_mcp.server.input.forms import NoSuchField, form_of
    from trio_mcp.types.elicitation import ElicitResult

    _check_message(message)
    # The model is read now and not when the question is asked, so that the traceback for a model that is not flat leads
    # to the function that made the question.
    form = form_of(model)

    def params(revision: str) -> dict[str, Any]:
        mode = {"mode": "form"} if rules_of(revision).elicitation_modes else {}
        try:
            return {**mode, "message": message, "requestedSchema": form.schema_for(revision)}
        except NoSuchField as exc:
            raise missing_capability(_FORM, str(exc)) from None

    def read(answer: Any) -> Elicited[ModelT]:
        result = ElicitResult.from_wire(answer)
        return _elicited(result.action, lambda: form.read(result.content or {}))

    return InputRequest(context, "elicitation/create", (_FORM,), params, read, key, timeout)


def ask_url(
    context: QuestionContext, message: str, url: str, elicitation_id: str | None, key: str | None, timeout: float | None
) -> InputRequest[Elicited[None]]:
    """Make a question that asks the user to visit a page; see `Context.elicit_url`."""
    from trio_mcp.types.elicitation import ElicitResult

    _check_message(message)
    if not isinstance(url, str):
        raise TypeError(f"url must be a string, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        # urlsplit drops line breaks and tabs, so the text itself is checked: the user may see it.
        valid = bool(parts.scheme and parts.netloc) and url.isprintable() and " " not in url
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"url must be an absolute URL, such as https://example.com/page; got {url!r}")
    if elicitation_id is not None:
        check_text("elicitation_id", elicitation_id)
    # Every question gets an id, though only one revision sends it: `UrlElicitationRequired` recognizes requests by it.
    identity = elicitation_id or str(uuid.uuid4())  # unique, as it identifies the client to notify

    def params(revision: str) -> dict[str, Any]:
        own = {"elicitationId": identity} if rules_of(revision).elicitation_ids else {}
        return {"mode": "url", "message": message, "url": url, **own}

    def read(answer: Any) -> Elicited[None]:
        return _elicited(ElicitResult.from_wire(answer).action, lambda: None)

    return InputRequest(context, "elicitation/create", (_URL,), params, read, key, timeout, identity)


def ask_roots(context: QuestionContext, key: str | None, timeout: float | None) -> InputRequest[list[Root]]:
    """Make a question for the client's roots; see `Context.list_roots`."""
    from trio_mcp.types.roots import ListRootsResult

    def read(answer: Any) -> list[Root]:
        return ListRootsResult.from_wire(answer).roots

    return InputRequest(context, "roots/list", ("roots",), lambda _: None, read, key, timeout)
