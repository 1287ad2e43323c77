"""The task `tag`: find entities in a text, nested ones too."""
