"""What models, corpora, vocabularies and masks look like: reports for the terminal and pages."""
