"""Checkpoints, vocabularies and students on disk; names of Hugging Face occur here alone."""
