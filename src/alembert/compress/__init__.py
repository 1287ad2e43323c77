"""Models made ready for use without torch: the graph, its quantisation, and the folder that holds them."""

from alembert.extras import TRAINING, require

require("Making an Export", *TRAINING)
