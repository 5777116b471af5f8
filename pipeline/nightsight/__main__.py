"""`python -m nightsight` is the command `nightsight`."""

from nightsight.cli import main

main(prog_name="nightsight")
