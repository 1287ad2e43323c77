"""Text without documents: sentences, words, lexicons, normalisation and tokenizers."""
