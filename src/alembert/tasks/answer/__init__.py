"""The task `answer`: find the answer to a question in a text."""
