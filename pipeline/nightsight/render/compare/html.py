"""The page of a comparison as one HTML file."""

from collections.abc import Sequence
from typing import Final

from nightsight.model.compare import Comparison
from nightsight.render import Source
from nightsight.render.compare.figures import lanes
from nightsight.render.compare.page import comparison_page
from nightsight.render.compare.steps import Step, median_steps
from nightsight.render.page.html import fill, with_policy
from nightsight.render.timeline.payload import steps_payload

_TITLES: Final = ("Baseline", "Candidate")


def render_comparison(comparison: Comparison, *, sources: tuple[Sequence[Source], Sequence[Source]] = ((), ())) -> str:
    """Render a comparison as one self-contained HTML page.

    `sources`: the runs of baseline and candidate. With the events of a run of each side, the page has both timelines.
    """
    steps = median_steps(sources)
    timeline = _timeline(steps) if steps else ""
    remark = _remark(steps) if steps else ""
    overview = lanes([(title, step.profile, step.length_ns) for title, step in zip(_TITLES, steps or (), strict=False)])
    view = comparison_page(comparison)
    return with_policy(fill("comparison.html", page=view, timeline=timeline, remark=remark, overview=overview))


def _timeline(steps: tuple[Step, Step]) -> str:
    sides = [(title, step.profile) for title, step in zip(_TITLES, steps, strict=True)]
    payload = steps_payload(sides, most_ns=max(step.length_ns for step in steps))
    return payload.decode() if payload else ""


def _remark(steps: tuple[Step, Step]) -> str:
    choice = "; ".join(f"{title.lower()}: {step.said}" for title, step in zip(_TITLES, steps, strict=True))
    return (
        f"Both moved to the same start ({choice}). A step is the one of median length, of the run with the median step "
        "time; it begins with the first GPU operation that was launched in it. What crosses an end is cut off there."
    )
