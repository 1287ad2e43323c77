"""`finetune`: train a model for one task, or for several on one encoder."""
