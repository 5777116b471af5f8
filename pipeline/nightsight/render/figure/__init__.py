"""Pictures in SVG and CSS that need no scripts: bars, curves, histograms, scatter plots, rooflines."""
