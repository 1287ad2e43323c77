"""`augment`: more training examples, made of those that are there."""
