"""What each command does: the order of the stages, and what is written where."""
