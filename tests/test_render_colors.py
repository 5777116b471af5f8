"""The colors of all pages: text and pictures have enough contrast, in both themes."""

import re
from pathlib import Path
from typing import Final

import pytest

_STYLES: Final = Path(__file__).parents[1] / "templates" / "styles"
_TEXT: Final = 4.5
_PICTURE: Final = 3.0
Rgb = tuple[float, float, float]


def tokens(theme: str) -> dict[str, Rgb]:
    """Return the colors of a theme by name."""
    light, dark = (_STYLES / "tokens.css").read_text().split("@media")
    texts = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    if theme == "dark":
        texts |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark))
    return {name: rgb(text) for name, text in texts.items()}


def rgb(text: str) -> Rgb:
    red, green, blue = (int(text[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def series() -> dict[str, str]:
    """Return the token of each series."""
    return dict(re.findall(r"\.(series-[\w-]+) \{ fill: var\(--(\w+)\)", (_STYLES / "series.css").read_text()))


def luminance(color: Rgb) -> float:
    shares = [part / 255 for part in color]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Rgb, other: Rgb) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def below(pairs: dict[str, tuple[Rgb, Rgb]], least: float) -> dict[str, float]:
    """Return the pairs with too little contrast."""
    return {name: ratio for name, pair in pairs.items() if (ratio := round(contrast(*pair), 2)) < least}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_what_it_is_on(theme: str) -> None:
    colors = tokens(theme)
    inks = ("text", "muted", "link", "error", "good", "warning")
    grounds = ("page", "surface", "error-surface", "warning-surface", "info-surface")
    pairs = {f"{ink} on {ground}": (colors[ink], colors[ground]) for ink in inks for ground in grounds}
    assert below(pairs, _TEXT) == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_series_stand_out_from_the_page_and_letters_from_series(theme: str) -> None:
    colors = tokens(theme)
    rule, _ = (_STYLES / "pictures.css").read_text().split(":not(.idle) ~ text {\n  fill: #121519", 1)
    dark_letters = set(
        re.findall(r"\.(series-\w+)", rule.split(":not(.idle) ~ text {\n  fill: #121519")[0].rsplit(":is(", 1)[1])
    )
    opacity = float(re.findall(r"\.idle \{ fill-opacity: ([\d.]+)", (_STYLES / "series.css").read_text())[0])
    solid = {name: (colors[token], colors["page"]) for name, token in series().items()}
    assert below(solid, _PICTURE) == {}
    letters = {
        name: (rgb("#121519") if name in dark_letters else colors["page"], fill) for name, (fill, _) in solid.items()
    }
    assert below({name: letters[name] for name in letters if "mix" not in name}, _TEXT) == {}
    pale = {
        f"{name}, pale": (
            colors["text"],
            tuple(opacity * own + (1 - opacity) * page for own, page in zip(*pair, strict=True)),
        )
        for name, pair in solid.items()
    }
    assert below(pale, _TEXT) == {}  # type: ignore[arg-type]
