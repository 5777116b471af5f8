"""What leaves a CI job: a history on a branch of its own, a comment on a pull request, issues for regressions."""
