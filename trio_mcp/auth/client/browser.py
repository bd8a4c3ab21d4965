"""A web browser, opened for a person to sign in."""

from __future__ import annotations

__all__ = ["open_browser"]


async def open_browser(url: str) -> None:
    """Open a page in the person's web browser, and write its URL to stderr, in case that none opens.

    Args:
        url: A URL of ``https`` or ``http``.

    Raises:
        AuthorizationError: If the URL is another kind of URL; nothing is opened then.
    """
    raise NotImplementedError
