"""Exports, which run without torch: the graph of a model, its quantisation, and its folder."""

from alembert.extras import TRAINING, require

require("Making an Export", *TRAINING)
