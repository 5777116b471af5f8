"""The roofline of replayed kernels: operations per second and per byte, and the roofs of their GPUs, from ncu."""

from typing import Final

import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay import core_work, tensor_work
from nightsight.analyze.replay.core_work import core_rates
from nightsight.analyze.replay.join import in_order
from nightsight.analyze.replay.metrics import device_names, figures_of
from nightsight.analyze.replay.tensor_work import tensor_peaks, tensor_rates
from nightsight.events.peaks import published
from nightsight.events.timeline import Timeline
from nightsight.results.ncu import NCU_ROOFLINE, NCU_ROOFS
from nightsight.system.parallel import memoize
from nightsight.tables import Frame

_PEAKS: Final = {"FP64": ("dfma_peak", 2), "FP32": ("ffma_peak", 2), "FP16": ("hfma_peak", 4)}
_MEMORIES: Final = {"DRAM": ("dram_bytes_per_cycle", "dram_hz"), "L2": ("l2_bytes_per_cycle", "l2_hz")}
_RATES: Final = [
    f"{memory}_{part}bytes{ending}"
    for memory, part in (("dram", ""), ("dram", "read_"), ("dram", "written_"), ("l2", ""))
    for ending in ("_per_s", "")
]
_DIFFERS: Final = 0.1
_PUBLISHED: Final = {
    "DRAM": ("memory_gb_per_s", 1e9, "bytes_per_s", "GB/s"),
    "FP32": ("fp32_tflop_per_s", 1e12, "flop_per_s", "TFLOP/s"),
    "tensor FP16": ("tensor_fp16_tflop_per_s", 1e12, "flop_per_s", "TFLOP/s"),
}


@memoize
def ncu_roofline(timeline: Timeline) -> Table:
    """Return one row per replayed launch and type of arithmetic that it executed."""
    work = pd.concat([core_rates(timeline), _tensor(tensor_rates(timeline))], ignore_index=True)
    figures = figures_of(timeline, [*_RATES, "replay_ns", "sm_hz"]).loc[work["launch"]].reset_index(drop=True)
    dram = _bytes_per_s(figures, "dram_{}bytes", parts=("read", "written"))
    l2 = _bytes_per_s(figures, "l2_{}bytes")
    roofs = _roofs(timeline)[["device", "gpu", "roof", "flop_per_s"]].rename(columns={"flop_per_s": "peak"})
    table = work.assign(
        flop_per_byte=work["flop_per_s"] / dram.where(dram > 0),
        l2_flop_per_byte=work["flop_per_s"] / l2.where(l2 > 0),
        clock_hz=figures["sm_hz"],
    ).merge(_devices_of_launches(timeline), on="launch", validate="m:1")
    work_keys, roof_keys = ["device", "gpu", "kind"], ["device", "gpu", "roof"]
    table = table.merge(roofs, how="left", left_on=work_keys, right_on=roof_keys, validate="m:1")
    table = table.assign(peak_pct=100.0 * table["flop_per_s"] / table["peak"])
    notes = (*core_work.unknown_work_notes(timeline), *tensor_work.unknown_work_notes(timeline))
    return Table(in_order(timeline, table)[NCU_ROOFLINE.column_names], notes)


def measured_work(timeline: Timeline) -> Frame:
    """Return what each launch (index) did: measured_flop of all types, DRAM measured_bytes, and measured_ns.

    NaN if it was not collected.
    """
    figures = figures_of(timeline, [*_RATES, "replay_ns"])
    seconds = figures["replay_ns"] / 1e9
    rates = pd.concat([core_rates(timeline), tensor_rates(timeline)], ignore_index=True)
    flop = rates.groupby("launch")["flop_per_s"].sum().reindex(figures.index, fill_value=0.0) * seconds
    are_counted = core_work.has_known_work(timeline) & tensor_work.has_known_work(timeline)
    bytes_per_s = _bytes_per_s(figures, "dram_{}bytes", parts=("read", "written"))
    return Frame(
        {
            "measured_flop": flop.where(are_counted),
            "measured_bytes": bytes_per_s * seconds,
            "measured_ns": figures["replay_ns"],
        }
    )


def _bytes_per_s(figures: Frame, name: str, *, parts: tuple[str, ...] = ()) -> "pd.Series[float]":
    """Return bytes per second: the rate, else the sum of the parts' rates, else bytes over the replay's duration."""
    seconds = figures["replay_ns"].where(figures["replay_ns"] > 0) / 1e9
    shares = [name.format(f"{part}_") for part in parts]
    rates, counts = (
        figures[[f"{share}{ending}" for share in shares]].sum(axis=1, skipna=False, min_count=1)
        for ending in ("_per_s", "")
    )
    total = name.format("")
    sources = [figures[f"{total}_per_s"], rates, figures[total] / seconds, counts / seconds]
    return pd.concat(sources, axis=1).bfill(axis=1).iloc[:, 0]


def ncu_roofs(timeline: Timeline) -> Table:
    """Return one row per device and roof: bytes per second of a memory, or operations per second of a type."""
    table = _roofs(timeline).sort_values(["device", "gpu", "place"], ignore_index=True)
    return Table(table[NCU_ROOFS.column_names], _roof_notes(table))


@memoize
def _roofs(timeline: Timeline) -> Frame:
    """Return the roofs of each device, from its longest replay that has them, and `place`, their order."""
    names = [name for pair in _MEMORIES.values() for name in pair]
    figures = figures_of(timeline, [*names, "replay_ns", "sm_hz", "device_khz"])
    memories = [
        Frame({"launch": figures.index, "roof": memory, "bytes_per_s": figures[per_cycle] * figures[clock]})
        for memory, (per_cycle, clock) in _MEMORIES.items()
    ]
    roofs = pd.concat([*memories, _peaks(timeline).rename(columns={"kind": "roof"})], ignore_index=True)
    roofs = roofs[roofs[["bytes_per_s", "flop_per_s"]].notna().any(axis=1)]
    # for short launches, ncu can report a clock above the GPU's maximum
    too_fast = (figures["sm_hz"] / (1e3 * figures["device_khz"])).clip(lower=1.0).fillna(1.0)
    roofs = roofs.assign(
        flop_per_s=roofs["flop_per_s"] / roofs["launch"].map(too_fast),
        replay_ns=roofs["launch"].map(figures["replay_ns"]).fillna(0.0),
        place=pd.factorize(roofs["roof"])[0],
    ).merge(_devices_of_launches(timeline), on="launch", validate="m:1")
    return roofs.sort_values("replay_ns", kind="stable").drop_duplicates(["device", "gpu", "roof"], keep="last")


def _peaks(timeline: Timeline) -> Frame:
    """Return launch, kind and the flop_per_s that could be sustained at the launch's clock."""
    figures = figures_of(timeline, [*(name for name, _ in _PEAKS.values()), "sm_hz"])
    rows = [
        Frame({"launch": figures.index, "kind": kind, "flop_per_s": (figures[name] * count * figures["sm_hz"])})
        for kind, (name, count) in _PEAKS.items()
    ]
    return pd.concat([*rows, _tensor(tensor_peaks(timeline))], ignore_index=True)


def _tensor(rates: Frame) -> Frame:
    kind = "tensor " + rates["type"].str.upper().str.replace("_", "/")
    return rates.assign(kind=kind)[["launch", "kind", "flop_per_s"]]


def _devices_of_launches(timeline: Timeline) -> Frame:
    """Return launch, device, and gpu (the device's name)."""
    launches = timeline.profile.table("profiled_launches")
    return launches[["launch", "device"]].assign(gpu=device_names(timeline).to_numpy())


def _roof_notes(roofs: Frame) -> tuple[str, ...]:
    """Return a note for each roof that differs from the published peak by more than 10 %."""
    notes = []
    for name, (published_as, unit, column, symbol) in _PUBLISHED.items():
        of_roof = roofs[roofs["roof"] == name].drop_duplicates("gpu")
        for gpu, value in zip(of_roof["gpu"], of_roof[column] / unit, strict=True):
            peak = getattr(published(gpu), published_as)
            if peak and abs(value / peak - 1) > _DIFFERS:
                values = f"{value:,.4g} {symbol}; NVIDIA publishes {peak:,.4g} {symbol}"
                notes.append(f"The {name} roof of {gpu} is {values}.")
    return tuple(notes)


ANALYSES: Final = (
    Analysis(NCU_ROOFLINE, ncu_roofline),
    Analysis(NCU_ROOFS, ncu_roofs),
)
