"""Progress on a terminal: a line for the series and one for its stage, each with a bar, time spent and time left."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from nightsight.progress import Clock, Reporter, clock_text
from nightsight.texts import printable

_WIDTH: Final = 20


class ProgressBars(Reporter):
    """Shows the current activity."""

    def __init__(self, bars: Progress) -> None:
        super().__init__()
        self._bars = bars
        self._tasks: dict[bool, TaskID] = {}

    def __call__(self, message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
        """Show this message until the next one."""
        self.doing = message
        self._bars.start()
        clock, is_new = self._clock(done, of, is_series=is_series)
        if is_series:
            self._end(is_series=False)
        if is_new:
            self._end(is_series=is_series)
            self._tasks[is_series] = self._bars.add_task(printable(message), total=None, clock=clock)
        else:
            self._bars.update(self._tasks[is_series], description=printable(message))

    def _end(self, *, is_series: bool) -> None:
        if is_series in self._tasks:
            self._bars.remove_task(self._tasks.pop(is_series))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bars while something is printed, until the next message."""
        self._clocks.pop(False, None)
        self._end(is_series=False)
        self._bars.stop()
        yield


class _ShareBar(ProgressColumn):
    def render(self, task: Task) -> ProgressBar:
        """Draw the share that is done; a pulsing bar if it is unknown."""
        share = _clock(task).share
        return ProgressBar(1.0, share or 0.0, width=_WIDTH, pulse=share is None, animation_time=task.get_time())


class _Times(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Write the time spent and the time left."""
        now_s, clock = time.monotonic(), _clock(task)
        left_s = clock.left_s(now_s)
        left = "" if left_s is None else f", about {clock_text(left_s)} left"
        return Text(f"{clock_text(now_s - clock.began_s)}{left}", no_wrap=True)


def _clock(task: Task) -> Clock:
    clock = task.fields["clock"]
    assert isinstance(clock, Clock)
    return clock


@contextmanager
def show_bars() -> Iterator[ProgressBars]:
    """Show bars on standard error, and remove them at the end."""
    words = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    with Progress(
        words,
        _ShareBar(),
        _Times(),
        console=Console(stderr=True),
        transient=True,
        # redirected standard output would end up on standard error
        redirect_stdout=False,
        refresh_per_second=4,
    ) as bars:
        yield ProgressBars(bars)
