"""Real programs: written as people write them, with the libraries' own loops; see docs/causes.md."""
