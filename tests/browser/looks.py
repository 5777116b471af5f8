"""In which looks pages are tested."""

from typing import Final

# (theme, width): colors follow from the theme, the arrangement from the width, and each is seen once
LOOKS: Final = [("light", 390), ("dark", 1280)]
