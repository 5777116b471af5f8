"""The HTML report page and the index of runs: their content, their order, and the HTML files."""
