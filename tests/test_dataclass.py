"""Dataclasses that are quicker to define behave as Python's do."""

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from nightsight.dataclass import dataclass


def both(define: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return a class that is defined with our decorator, and with Python's."""
    return define(dataclass), define(dataclasses.dataclass)


def point(decorator: Any) -> Any:
    @decorator(frozen=True)
    class Point:
        """A place."""

        x: int
        name: str = "a"
        note: str = field(default="", compare=False, repr=False)
        parts: list[int] = field(default_factory=list, hash=False)

        @cached_property
        def double(self) -> int:
            return 2 * self.x

    return Point


@dataclass(frozen=True)
class Kept:
    """A class that pickle finds."""

    x: int
    y: tuple[int, ...] = ()


@pytest.mark.parametrize("left", [(1,), (1, "b"), (1, "a", "note"), (1, "a", "", [3])])
@pytest.mark.parametrize("right", [(1,), (2,), (1, "a", "other"), (1, "a", "", [3])])
def test_objects_compare_hash_and_print_like_those_of_python(left: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    ours, theirs = both(point)
    assert (ours(*left) == ours(*right)) == (theirs(*left) == theirs(*right))
    assert hash(ours(*left)) == hash(theirs(*left))
    assert repr(ours(*left)) == repr(theirs(*left))
    assert ours(*left) != theirs(*left)


def test_a_missing_number_equals_itself_as_in_python() -> None:
    missing = float("nan")
    assert [cls(missing) == cls(missing) for cls in both(point)] == [True, True]
    assert [cls(missing) == cls(float("nan")) for cls in both(point)] == [False, False]


def test_fields_are_set_once() -> None:
    value = point(dataclass)(1)
    for name in ("x", "name", "note"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(value, name, 2)
    with pytest.raises(FrozenInstanceError, match="x"):
        del value.x
    assert value.double == value.double == 2


def test_functions_of_dataclasses_know_them() -> None:
    ours, theirs = both(point)
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    assert asdict(replace(ours(1), name="b")) == asdict(replace(theirs(1), name="b"))
    assert ours(1).parts is not ours(1).parts
    with pytest.raises(TypeError, match="x"):
        ours()


def test_objects_are_pickled_and_copied() -> None:
    value = Kept(1, (2,))
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)


def test_subclasses_add_fields_and_differ_from_their_base() -> None:
    def inherit(decorator: Any) -> Any:
        @decorator(frozen=True, kw_only=True)
        class Base:
            x: int = 1

        @decorator(frozen=True, kw_only=True)
        class Derived(Base):
            y: int

        return Base, Derived

    for base, derived in both(inherit):
        assert repr(derived(y=2)).endswith("Derived(x=1, y=2)")
        assert (derived(y=2) == derived(x=1, y=2), derived(y=2) == base(), hash(base()) == hash(base(x=1))) == (
            True,
            False,
            True,
        )


def test_identity_is_kept_without_eq_and_others_are_pythons() -> None:
    @dataclass(frozen=True, eq=False)
    class Alone:
        x: int

    @dataclass
    class Open:
        x: int

    @dataclass(frozen=True, order=True)
    class Sorted:
        x: int

    assert Alone(1) != Alone(1)
    assert len({Alone(1), Alone(1)}) == 2
    changed = Open(1)
    changed.x = 2
    assert changed == Open(2)
    assert Sorted(1) < Sorted(2)


def test_all_modules_use_it() -> None:
    package = Path(__file__).parents[1] / "pipeline" / "nightsight"
    slow = re.compile(r"^from dataclasses import .*\bdataclass\b|^import dataclasses", re.MULTILINE)
    users = [file.name for file in package.rglob("*.py") if slow.search(file.read_text(encoding="utf-8"))]
    assert users == ["dataclass.py"]
