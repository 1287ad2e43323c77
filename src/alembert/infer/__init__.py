"""Inference: predict, evaluate, annotate, embed, search and generate with trained models."""
