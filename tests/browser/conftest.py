"""What the tests in a browser share."""

from serving_exports import exports, tagger

__all__ = ["exports", "tagger"]
