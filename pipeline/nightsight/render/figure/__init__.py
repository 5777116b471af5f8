"""Pictures as SVG and CSS, finished without scripts: bars, curves, histograms, roofs."""
