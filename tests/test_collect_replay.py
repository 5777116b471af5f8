from nightsight.collect.replay import Replay, missing_metrics


def test_metrics_that_ncu_left_out_silently_are_named() -> None:
    asked = ("--section", "Occupancy", "--metrics", "no__such.metric,sm__cycles.avg,dram__bytes,group:memory__x")
    (finding,) = missing_metrics(Replay(collected=asked), ["sm__cycles.avg", "dram__bytes.sum", "dram__bytes.max"])
    assert finding.title == "ncu did not collect 1 of 3 metrics"
    assert "no__such.metric." in finding.detail
    assert missing_metrics(Replay(), []) == ()
    assert missing_metrics(Replay(collected=("--metrics", "sm__cycles")), ["sm__cycles_elapsed.avg"]) != ()
