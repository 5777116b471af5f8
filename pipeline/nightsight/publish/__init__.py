"""The output of a CI job: a history on its own branch, a comment on a pull request, issues for regressions."""
