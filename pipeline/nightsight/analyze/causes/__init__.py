"""Why the window takes as long as it does: its dependencies, the critical path, and the predicted gain of each fix."""
