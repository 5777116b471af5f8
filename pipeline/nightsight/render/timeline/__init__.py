"""The timeline in the page: rows, levels of detail, sums, and how they are written into it."""
