"""The values passed between stages: reports, comparisons, proofs, histories and fleets."""
