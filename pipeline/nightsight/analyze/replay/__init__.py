"""What ncu's replays say, joined with the timeline."""
