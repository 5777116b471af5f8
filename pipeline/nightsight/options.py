"""What the command line checks of an option's value before a program has run for it."""

import re
from math import isnan
from typing import Any, Final

import click

# what a backslash or a set makes plain
_PLAIN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_NOT_ECMASCRIPT: Final = re.compile(r"\(\?(?![:=!])(?:P?<[=!]?|P?.?)")


class Number(click.FloatRange):
    """A number in a range, which nan is not although it compares as if it were."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Convert as Click does, and refuse nan."""
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value} is no number.", param, ctx) if isnan(number) else number


def expression(_: click.Context, __: click.Parameter, value: str) -> str:
    """Refuse what is no regular expression for ncu, whose grammar is ECMAScript's of C++."""
    try:
        # ncu gets it in a group, and its grammar has no flags
        re.compile(f".(?:{value})")
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression of ncu: {error.msg}.") from error
    found = _NOT_ECMASCRIPT.search(_PLAIN.sub("", value))
    if found:
        reason = f"its grammar has no {found[0]}, of groups only (...), (?:...), (?=...) and (?!...)"
        raise click.BadParameter(f"{value!r} is no regular expression of ncu: {reason}.")
    return value


def no_empty_name(_: click.Context, __: click.Parameter, value: Any) -> Any:  # noqa: ANN401 (one text, or several)
    """Refuse an empty name, alone or between commas."""
    for given in (value,) if isinstance(value, str) else value or ():
        if not all(name.strip() for name in given.split(",")):
            raise click.BadParameter(f"{given!r} has an empty name.")
    return value


def standard_output(_: click.Context, __: click.Parameter, value: Any) -> Any:  # noqa: ANN401 (a path, or its text)
    """Take the system's name for standard output as `-`: what it is a link to is not ours to replace."""
    return type(value)("-") if str(value) == "/dev/stdout" else value
