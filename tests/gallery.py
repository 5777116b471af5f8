"""The gallery of the site: a report for each of the most frequent causes, made from captures of the tests."""

import lzma
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from nightsight.captures import unprofiled_file
from nightsight.progress import silent
from nightsight.render import FORMATS, Source
from nightsight.render.page.headline import headline
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict
from nightsight.workflows.job import open_job
from nightsight.workflows.opening import Reading, open_file

DATA: Final = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Entry:
    """A report of the gallery.

    rule: that of the first advice, if any. capture: in tests/data, without its ending; of a job, without the number of
    the rank.
    """

    rule: str
    program: str
    capture: str
    ranks: int = 1

    @property
    def captures(self) -> tuple[str, ...]:
        """Its captures in tests/data, one for each rank, without their endings."""
        return tuple(f"{self.capture}.{rank}" for rank in range(self.ranks)) if self.ranks > 1 else (self.capture,)

    @property
    def name(self) -> str:
        """The name of its files, and the title of its report."""
        return Path(self.capture).name.partition(".")[0]


@dataclass(frozen=True)
class Shown:
    """A report of the gallery: its headline, its page, and its ladder of fixes as a picture."""

    title: str
    page: bytes
    picture: bytes


GALLERY: Final = (
    Entry("tensor_cores", "BERT with Accelerate, FP32", "real/accelerate_bert"),
    Entry("attention", "a vision transformer of timm with attention as separate kernels", "real/vit_attention"),
    Entry("fusion", "ConvNeXt of timm in the layout NCHW", "real/convnext_nchw"),
    Entry("launch_bound", "GPT-2 that generates text, Hugging Face", "real/gpt2_generate"),
    Entry("launch_bound", "training an equivariant network of e3nn on small molecules", "real/e3nn_molecules"),
    Entry("host_code", "Lightning with images decoded in the main process", "real/lightning_images"),
    Entry("restarted_workers", "an ImageFolder whose workers start for each epoch", "real/image_folder"),
    Entry("pageable_copy", "Numba kernels on arrays of NumPy", "real/numba_arrays"),
    Entry("misaligned", "GPT-2 with a vocabulary of odd size", "real/gpt2_vocabulary"),
    Entry("concatenation", "a chat model whose KV cache grows by torch.cat", "planted/others/chat_decode"),
    Entry("fp64", "molecules in FP64, the type of NumPy's arrays", "planted/others/molecule_md"),
    Entry("fused_optimizer", "recommendations with Adagrad on large embeddings", "planted/others/ctr_recsys"),
    Entry("wait", "a Jacobi solver in CUDA C++ that reads its residual in each iteration", "real/jacobi_waits"),
    Entry("launch_bound", "a simulation in JAX that calls a jitted function for each time step", "real/jax_loop"),
    Entry("fusion", "option prices in CuPy, operation by operation", "real/cupy_options"),
    Entry("loading", "modules loaded in each step", "planted/loading.bad"),
    Entry("compilation", "torch.compile with new shapes", "planted/compiled_shape.bad"),
    Entry("allocation", "torch.cuda.empty_cache() in each step", "planted/empty_cache.bad"),
    Entry("many_small_copies", "300 copies of 4 kB in each step", "planted/small_copies.bad"),
    Entry("copies_to_host", "activations copied to the host in each step", "planted/copies_to_host.bad"),
    Entry("small_grid", "a kernel with few blocks", "planted/small_grid.bad"),
    Entry(
        "host_code",
        "two ranks, recorded separately, of which one works on the CPU",
        "planted/ranks/straggler_host",
        ranks=2,
    ),
    Entry("uneven_experts", "four ranks, whose router prefers one expert", "jobs/uneven_experts.bad"),
    Entry("straggler", "two GPUs, of which one computes longer", "planted/straggler.bad"),
    Entry(
        "exposed_communication",
        "gradients reduced after the backward pass, two GPUs",
        "planted/exposed_communication.bad",
    ),
    Entry("", "a transformer in BF16, where nothing is wrong", "planted/transformer.bad"),
)


def unpacked(name: str, folder: Path) -> Path:
    """Return a capture of the tests, with what was measured beside it."""
    packed, capture = DATA / f"{name}.sqlite.xz", folder / f"{Path(name).name}.sqlite"
    capture.write_bytes(lzma.decompress(packed.read_bytes()))
    if (measured := unprofiled_file(DATA / f"{name}.sqlite")).exists():
        shutil.copy(measured, folder)
    return capture


def contents() -> Iterator[str]:
    """Write the entries as a table, for those who read docs/ without the site."""
    yield "| cause | program | capture in `tests/data` |\n|---|---|---|"
    for entry in GALLERY:
        files = ", ".join(f"`{capture}.sqlite.xz`" for capture in entry.captures)
        yield f"| {f'`{entry.rule}`' if entry.rule else 'none'} | {entry.program} | {files} |"


@cache
def gallery() -> dict[Entry, Shown]:
    """Make all reports of the gallery, each in a process of its own."""
    with ProcessPoolExecutor() as processes:
        return dict(zip(GALLERY, processes.map(shown, GALLERY), strict=True))


@contextmanager
def opened(entry: Entry) -> Iterator[Source]:
    """Open the captures of an entry."""
    reading, form = Reading(None, 1 << 30, silent), FORMATS["html"]
    with tempfile.TemporaryDirectory() as folder:
        paths = [unpacked(capture, Path(folder)) for capture in entry.captures]
        source = open_job(paths, form, reading) if len(paths) > 1 else open_file(paths[0], form, reading)
        assert source is not None
        yield source


def shown(entry: Entry) -> Shown:
    """Make the report of an entry."""
    with opened(entry) as source:
        run = numbers(source.report)
        outcome = verdict(source.report, run)
        found = outcome.advice.rule if outcome.advice else ""
        if found != entry.rule:
            raise ValueError(f"the first advice on {entry.capture} is {found or 'none'}, not {entry.rule or 'none'}")
        return Shown(
            headline(outcome, source.report, run).title,
            FORMATS["html"].render(source)[""],
            FORMATS["svg"].render(source)[""],
        )
