"""The timeline of the page: rows, levels of detail, sums, and the packed payload."""
