"""How hard Hypothesis tries: profile ``fast``, for every day, and ``thorough`` (``--hypothesis-profile=thorough``)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["examples"]

_THOROUGH = 100
"""Examples of a test that asks for no number: Hypothesis's own default."""

for _name, _examples in {"fast": 20, "thorough": _THOROUGH}.items():
    # No deadline: a busy machine is not a bug. A failure on a machine of CI is repeated with what it prints.
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("fast")  # unless the command line names another one


def examples(thorough: int, daily: int | None = None) -> int:
    """Return the number of examples in the current profile for a test that has ``thorough`` of them in that profile.

    Args:
        thorough: That number.
        daily: The number for every day, if it is not in proportion.
    """
    assert settings.default is not None
    if daily is not None and settings.default.max_examples < _THOROUGH:
        return daily
    return max(1, thorough * settings.default.max_examples // _THOROUGH)
