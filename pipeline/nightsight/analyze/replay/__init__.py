"""Results of ncu's replays, joined with the timeline."""
