"""Commands outside `nightsight.cli`: one module per group, imported there without heavy dependencies."""
