"""The task `relate`: relations between two entities; with a tagger: text in, triples out."""
