"""`distill`: train a small student on what a large teacher predicts."""
