"""The task `compare`: vectors of texts, and how alike two texts are."""
