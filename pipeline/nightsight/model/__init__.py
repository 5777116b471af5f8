"""The values handed from stage to stage, by what they are about: a report, a comparison, a history, a fleet."""
