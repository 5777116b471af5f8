"""How many examples a property gets: as many as its test asks for, or fewer where NIGHTSIGHT_EXAMPLES says so."""

import os
from collections.abc import Sequence
from typing import Final

from hypothesis import HealthCheck, settings

_MOST: Final = int(os.environ.get("NIGHTSIGHT_EXAMPLES", "1000000"))


def keep_calm() -> None:
    """Set what holds for all properties: how long an example takes depends on what else the machine does."""
    settings.register_profile("calm", examples(100), deadline=None)
    settings.load_profile("calm")


def examples(count: int, *, suppress: Sequence[HealthCheck] = ()) -> settings:
    """Return the decorator of a property that wants so many examples."""
    return settings(max_examples=min(count, _MOST), suppress_health_check=[HealthCheck.too_slow, *suppress])
