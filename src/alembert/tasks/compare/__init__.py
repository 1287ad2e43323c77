"""The task `compare`: sentence vectors: SimCSE, pairs, triples, similarity scores."""
