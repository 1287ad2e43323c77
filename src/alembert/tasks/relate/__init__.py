"""The task `relate`: find relations between the entities of a text."""
