"""Explanations: which words and features made a decision of a model, and how faithful that picture is."""
