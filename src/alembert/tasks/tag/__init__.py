"""The task `tag`: entities and parts of speech, with character offsets."""
