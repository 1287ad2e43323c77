"""The task `generate`: text from text: titles, summaries; or the sentences that summarise a text."""
