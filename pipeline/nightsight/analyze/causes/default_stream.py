"""Find work that the default stream keeps in order although threads launched it at the same time.

All threads of a process use one legacy default stream unless the program chooses others. Work of one thread then waits
for that of the others. With a stream for each thread, kernels of several threads share the GPU, so how much earlier
they can run depends on the SMs that they leave free.
"""

from typing import Final, NamedTuple

import numpy as np

from nightsight.analyze.causes.model import AWAIT_OWN, LAUNCH, STREAM
from nightsight.analyze.causes.scene import Scene
from nightsight.intervals import Floats, Ints
from nightsight.system.parallel import memoize
from nightsight.tables import SHAPE, integers

# a GPU for computing has at least as many SMs (A100: 108, H100: 132, B200: 148); for captures without its properties
_SMS: Final = 100
# threads of a usual block: several smaller ones take the room of one
_BLOCK: Final = 256


class Shared(NamedTuple):
    """Work on the default stream that follows work of another thread, by position in OperationNodes.

    earlier_ns: how much earlier each can start, at the same time as the operation that it followed. waiting: the calls
    that wait for work of other threads on that stream.
    """

    operations: Ints
    earlier_ns: Floats
    waiting: Ints


@memoize
def shared_default_stream(scene: Scene) -> Shared | None:
    """Return the work that would not wait for other threads with a stream for each; None without such work.

    Only threads that launch kernels count: one that only copies may copy what another needs next.
    """
    work, calls, model = scene.graph.work, scene.graph.calls, scene.model
    is_kernel = work.operation < int(scene.timeline.operations.of("kernels").sum())
    launched = np.flatnonzero(work.call >= 0)
    line = np.full(len(work), -1, dtype=np.int64)
    line[launched] = calls.line[work.call[launched]]
    computing = np.unique(line[is_kernel & (line >= 0)])
    rows = np.flatnonzero(work.is_shared & model.has(STREAM) & model.has(LAUNCH) & np.isin(line, computing))
    rows = rows[np.isin(line[work.previous[rows]], computing)]
    earlier_ns = (1 - np.append(_filled(scene), 0))[work.previous[rows]] * scene.length[work.previous[rows]]
    # copies in one direction share a copy engine
    is_same_engine = (work.direction[rows] >= 0) & (work.direction[rows] == work.direction[work.previous[rows]])
    rows, earlier_ns = rows[~is_same_engine], earlier_ns[~is_same_engine]
    return Shared(rows, earlier_ns, np.flatnonzero(model.has(AWAIT_OWN))) if len(rows) else None


def _filled(scene: Scene) -> Floats:
    """Return the share of the SMs that each operation fills: all of them if its grid is unknown, none for host copies.

    A kernel with a block for each SM may leave room, but competes for memory and caches.
    """
    work, timeline = scene.graph.work, scene.timeline
    kernels, devices = (timeline.profile.recorded(name) for name in ("kernels", "devices"))
    filled = np.where(work.direction >= 0, 0.0, 1.0)
    rows = np.flatnonzero((work.operation < len(kernels)) & ~work.is_communication)
    if {*SHAPE} <= set(kernels.columns):
        shapes = kernels.iloc[work.operation[rows]]
        blocks, threads = (shapes[axes].to_numpy(dtype=np.float64).prod(axis=1) for axes in (SHAPE[:3], SHAPE[3:]))
        used = devices[devices["device"].isin(work.device[rows])]
        multiprocessors = int(integers(used["multiprocessors"]).min(initial=1 << 20)) if len(used) else 0
        multiprocessors = multiprocessors if 0 < multiprocessors < 1 << 20 else _SMS
        share = np.ceil(blocks * np.minimum(threads / _BLOCK, 1)) / multiprocessors
        # no grid is known
        filled[rows] = np.where(share > 0, np.minimum(share, 1), 1)
    return filled
