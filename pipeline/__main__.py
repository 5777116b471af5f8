"""`python pipeline ...` is the command `nightsight` in a checkout, with nothing installed."""

from nightsight.cli import main

if __name__ == "__main__":
    main(prog_name="nightsight")
