"""Axes: which of their texts a narrow plot has room for."""

import pytest

from nightsight.render.figure.axes import Tick, spaced


@pytest.mark.parametrize(
    ("texts", "spare"),
    [
        (("0.001", "0.01", "0.1", "1", "10", "100", "1,000"), [1, 3, 5]),
        (("0", "10 ms", "20 ms"), []),
        ((), []),
    ],
)
def test_every_second_text_is_spare_where_two_would_nearly_touch(texts: tuple[str, ...], spare: list[int]) -> None:
    ticks = [Tick(100 * place / (len(texts) - 1), text) for place, text in enumerate(texts)]
    assert [place for place, tick in enumerate(spaced(ticks)) if tick.is_spare] == spare
    assert [tick.text for tick in spaced(ticks)] == list(texts)


def test_the_style_is_told_what_is_last_and_what_is_spare() -> None:
    assert [tick.classes for tick in (Tick(50, "a"), Tick(98, "b"), Tick(98, "c", is_spare=True))] == [
        *("", "last"),
        "last spare",
    ]
