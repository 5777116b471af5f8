"""How much a test tries: all that it asks for at night, less in `make test` and `make check`."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

_MOST: Final = int(os.environ.get("NIGHTSIGHT_EXAMPLES", "1000000"))


def keep_calm() -> None:
    """Set what holds for all properties: how long an example takes depends on what else the machine does."""
    settings.register_profile("calm", examples(100), deadline=None)
    settings.load_profile("calm")


def examples(count: int, *, suppress: Sequence[HealthCheck] = ()) -> settings:
    """Return the decorator of a property that wants so many examples; it gets at most NIGHTSIGHT_EXAMPLES."""
    return settings(max_examples=min(count, _MOST), suppress_health_check=[HealthCheck.too_slow, *suppress])


def at_night(*values: object) -> "list[ParameterSet]":
    """Return the values of a parameter that only `make nightly` tries, as others show the same."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]
