"""The task `generate`: write a text, or a structure, for a text."""
