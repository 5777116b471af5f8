"""`python -m pipeline` is the command `nightsight`."""

from pipeline.cli import main

main(prog_name="nightsight")
