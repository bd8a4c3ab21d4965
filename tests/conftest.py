"""Settings for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: a busy machine is not a bug.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
