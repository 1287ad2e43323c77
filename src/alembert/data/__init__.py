"""What training reads: batches, masks, windows and their order, each found by its address."""
