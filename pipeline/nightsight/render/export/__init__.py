"""Files for other programs: data, Markdown, Perfetto, speedscope."""
