"""The encoder, its heads and losses in torch: no files, no text and no names of other libraries."""
