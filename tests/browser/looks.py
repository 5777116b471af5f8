"""In which looks pages are tested."""

from typing import Final

# (theme, width): colors follow from the theme, the arrangement from the width, and each is seen once
LOOKS: Final = [("light", 390), ("dark", 1280)]

OPEN_ALL: Final = "for (const each of document.querySelectorAll('details.closed, details.folded')) each.open = true"
"""A script that opens the details of a page."""
