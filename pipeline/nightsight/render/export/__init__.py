"""Exports for other programs: data files, Markdown, Perfetto, speedscope."""
