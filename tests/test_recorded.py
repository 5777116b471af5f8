"""What tests share they cannot change for one another."""

import numpy as np
import pandas as pd
import pytest

from tests.recorded import Recorded


def test_what_one_test_changes_no_other_sees(recorded: Recorded) -> None:
    first, second = (recorded.profile("train").table("kernels") for _ in range(2))
    first["device"] = 7
    first.loc[:, "start_ns"] = 0
    pd.testing.assert_frame_equal(second, recorded.profile("train").table("kernels"))
    assert (second["start_ns"] > 0).all()
    table = recorded.report("train").result("gpu_time").rows
    table["device"] = 7
    assert (recorded.report("train").result("gpu_time").rows["device"] != 7).all()


def test_what_frames_share_cannot_be_written_to(recorded: Recorded) -> None:
    times = recorded.profile("train").table("kernels")["start_ns"].to_numpy()
    with pytest.raises(ValueError, match="read-only"):
        times[0] = 0
    assert np.shares_memory(times, recorded.profile("train").table("kernels")["start_ns"].to_numpy())
