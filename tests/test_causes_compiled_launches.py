"""What torch.compile leaves of the host code before the launches that remain."""

from nightsight.analyze.causes.simulation import Gain, simulate
from nightsight.events.timeline import Timeline
from tests.program import Host, Kernel, Statement, Sync, captured, within


def fusion(*, changes_shape: bool) -> Gain:
    """Return the gain of fusing in a program that the host limits."""

    def chain(blocks: int) -> list[Statement]:
        names = [f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}>(int)" for name in "abc"]
        names.append("void gemmSN_TN_kernel<float>(int)")
        return [part for name in names for part in (Host(30), Kernel(8, name=name, blocks=blocks))]

    steps = [within("step", *(6 * chain(1000 + number * changes_shape)), Sync()) for number in range(12)]
    gains = simulate(Timeline(captured(tuple(steps)))).gains
    (gain,) = (gain for gain in gains if gain.remedy.rule == "fusion")
    return gain


def test_nothing_else_is_shorter_if_each_step_has_new_shapes() -> None:
    compiled, compiled_anew = fusion(changes_shape=False), fusion(changes_shape=True)
    assert compiled.remedy.launching
    assert not compiled_anew.remedy.launching
    assert compiled_anew.gain_ns < compiled.gain_ns
