"""The version of nightsight."""

from typing import Final

VERSION: Final = "0.1.0"
