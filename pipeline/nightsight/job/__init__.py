"""One profile of those of the ranks of a job: which rank is which, on one clock, with numbers that do not clash."""
