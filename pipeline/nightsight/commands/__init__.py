"""Commands that are not in `nightsight.cli`: a module per group, imported there, without anything heavy."""
