"""The worked cases of real programs in docs/cases.md: what their reports say, and what was measured."""

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nightsight.model.prove import ProofReport
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict
from nightsight.results.causes import FIX_LADDER
from nightsight.units import in_text
from tests.gallery import DATA, GALLERY, Entry, opened


@dataclass(frozen=True)
class Worked:
    """A case. name: of its report in the gallery. before, after: the forms that were timed without a profiler.

    fix: what the form `after` has. proofs: in tests/data/real/proofs.
    """

    name: str
    fix: str
    before: str
    after: str
    proofs: tuple[str, ...] = ()

    @property
    def entry(self) -> Entry:
        (entry,) = (entry for entry in GALLERY if entry.name == self.name)
        return entry

    @property
    def times_ms(self) -> tuple[float, float]:
        """A step before and after the fix: the median of its trials, if there are several."""
        times = json.loads((DATA / self.entry.capture).with_name("times.json").read_text(encoding="utf-8"))[self.name]
        before, after = (
            each if isinstance(each := times[form], float) else statistics.median(each)
            for form in (self.before, self.after)
        )
        return before, after


WORKED: Final = (
    Worked("accelerate_bert", "TF32", "base", "tf32", ("accelerate_bert", "accelerate_bert_h100")),
    Worked("e3nn_molecules", "torch.compile with CUDA graphs", "base", "graph", ("e3nn_molecules",)),
    Worked("vit_attention", "fused attention", "base", "fused", ("vit_attention",)),
    Worked("lightning_images", "eight workers", "base", "workers", ("lightning_images", "lightning_images_h100")),
    Worked("gpt2_generate", "a static cache", "base", "static"),
    Worked("jacobi_waits", "the residual read in every hundredth sweep", "base", "rarely"),
    Worked("straggler_host", "no work in `load`", "bad", "fixed"),
)


def said(worked: Worked) -> Iterator[str]:
    """Write the first sentences of the report, and a table of predicted and measured steps, as Markdown."""
    with opened(worked.entry) as source:
        report = source.report
    steps = report.rows(FIX_LADDER).groupby("order")["time_ns"].sum()
    yield f"> {verdict(report, numbers(report)).text}\n"
    yield "| a step without the profiler | before | after | gain | results |\n|---|---|---|---|---|"
    yield row("predicted by the report", steps[0], steps[1])
    before_ms, after_ms = worked.times_ms
    yield row(f"measured with {worked.fix}", 1e6 * before_ms, 1e6 * after_ms)
    for name in worked.proofs:
        proven = ProofReport.from_json((DATA / "real" / "proofs" / f"{name}.json").read_bytes())
        gpu = "H100" if "H100" in proven.gpu else "H200"
        for proof in proven.proofs:
            if proof.rule == worked.entry.rule and proof.base_ns and proof.step_ns:
                detail = f": {proof.results.detail.removeprefix('different ')}" if proof.results.detail else ""
                what = f"`nightsight prove`, {gpu}: `{'`, `'.join(proof.switches)}`"
                results = f"{proof.verdict}; {proof.results.verdict}{detail}"
                yield row(what, proof.base_ns, proof.step_ns, results)


def row(what: str, before_ns: float, after_ns: float, results: str = "") -> str:
    """Write one row: two steps, and how much shorter the second one is."""
    steps = " | ".join(in_text(step, "step_ns") for step in (before_ns, after_ns))
    return f"| {what} | {steps} | {in_text(100 * (1 - after_ns / before_ns), 'gain_pct')} | {results} |"
