"""The task `choose`: the choice that answers a question."""
