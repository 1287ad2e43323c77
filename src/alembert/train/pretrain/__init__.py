"""`pretrain`: adapt a model to text, or train one from nothing."""
