"""Everything that changes weights: pre-training, fine-tuning, distillation, augmentation."""

from alembert.extras import TRAINING, require

require("Training", *TRAINING)
