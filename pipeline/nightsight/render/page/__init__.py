"""The HTML page of a report and the list of runs: what they say, in which order, and the file itself."""
