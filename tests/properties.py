"""How much a test tries: all that it asks for at night, less in `make test` and `make check`."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.tiers import fitting_examples

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

_MOST: Final = int(os.environ.get("NIGHTSIGHT_EXAMPLES", "1000000"))
_FEWEST: Final = 3
_Test = TypeVar("_Test", bound=Callable[..., None])


def keep_calm() -> None:
    """Set what holds for all properties: how long an example takes depends on what else the machine does."""
    settings.register_profile("calm", _settings(100, ()), deadline=None)
    settings.load_profile("calm")


def examples(count: int, *, suppress: Sequence[HealthCheck] = ()) -> Callable[[_Test], _Test]:
    """Return the decorator of a property that wants so many examples.

    It gets at most NIGHTSIGHT_EXAMPLES, and as many as fit into the time that all cases of a test may take.
    """

    def decorated(test: _Test) -> _Test:
        fitting = max(fitting_examples(f"{test.__module__.replace('.', '/')}.py::{test.__name__}"), _FEWEST)
        return settings(_settings(min(count, fitting), suppress))(test)

    return decorated


def _settings(count: int, suppress: Sequence[HealthCheck]) -> settings:
    return settings(max_examples=min(count, _MOST), suppress_health_check=[HealthCheck.too_slow, *suppress])


def at_night(*values: object) -> "list[ParameterSet]":
    """Return the values of a parameter that only `make nightly` tries, as others show the same."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]
