"""Why the window takes as long as it does: what waited for what, the critical path, and what remedies would gain."""
