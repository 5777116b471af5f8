"""The page of a comparison as one HTML file."""

from collections.abc import Sequence

from nightsight.model.compare import Comparison
from nightsight.render import Source
from nightsight.render.compare.figures import lanes
from nightsight.render.compare.page import comparison_page
from nightsight.render.compare.steps import median_run, median_steps
from nightsight.render.page.html import fill, with_policy
from nightsight.render.page.windows import ladder_of
from nightsight.render.timeline.payload import steps_payload


def render_comparison(comparison: Comparison, *, sources: tuple[Sequence[Source], Sequence[Source]] = ((), ())) -> str:
    """Render a comparison as one self-contained HTML page.

    `sources`: the runs of baseline and candidate. With the events of a run of each side, the page has both timelines.
    """
    view, steps = comparison_page(comparison), median_steps(sources) or ()
    sides = list(zip(("Baseline", "Candidate"), steps, strict=False))
    timeline, remark = "", ""
    if sides:
        profiles = [(title, step.profile) for title, step in sides]
        payload = steps_payload(profiles, most_ns=max(step.length_ns for step in steps))
        timeline = payload.decode() if payload else ""
        choice = "; ".join(f"{title.lower()}: {step.text}" for title, step in sides)
        remark = (
            f"Both are shifted to the same start ({choice}). The step of median length is shown, of the run with the "
            "median step time; it begins with the first GPU operation that was launched in it. Events that cross an "
            "end are cut off there."
        )
    ladders = [ladder_of(run.report) if (run := median_run(side)) else None for side in sources]
    longest = max((view.whole_ns for view in ladders if view), default=0.0)
    scaled = [view.on_scale(longest) if view else None for view in ladders]
    fixes = list(zip(("Baseline", "Candidate"), scaled, strict=True)) if longest else []
    overview = lanes([(title, step.profile, step.length_ns) for title, step in sides])
    return with_policy(
        fill("comparison.html", page=view, timeline=timeline, remark=remark, overview=overview, fixes=fixes)
    )
