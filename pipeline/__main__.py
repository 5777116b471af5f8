"""`python pipeline ...` is the command `nightsight` in a checkout, with nothing installed."""

from nightsight.__main__ import main

if __name__ == "__main__":
    main()
