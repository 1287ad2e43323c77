"""Tasks: what a model is fine-tuned for. `task` is the contract; each task is a file of its own."""
