"""Labelled examples from files: texts with labels, questions, choices, and pairs of source and target."""
