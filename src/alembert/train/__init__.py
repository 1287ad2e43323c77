"""Everything that changes weights: pre-training, fine-tuning, distillation, augmentation."""
