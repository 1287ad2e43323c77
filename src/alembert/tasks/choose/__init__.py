"""The task `choose`: choose one of several answers to a question."""
