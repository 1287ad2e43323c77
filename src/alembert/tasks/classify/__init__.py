"""The task `classify`: give a text one label, several, or a number."""
