"""The task `answer`: answers to questions, from a passage or as yes, no, maybe."""
