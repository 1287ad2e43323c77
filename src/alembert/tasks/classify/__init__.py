"""The task `classify`: one label, several, or a number, for texts, pairs or sentences of a document."""
