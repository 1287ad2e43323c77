"""Names that columns of labelled data usually have."""

from __future__ import annotations

from typing import Final

from alembert.corpus.readers.records import ID_FIELDS, LABEL_FIELDS, TEXT_FIELDS

PAIRS: Final = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "answer"),
    ("query", "passage"),
)
"""First and second text of a pair."""
TEXTS: Final = (*TEXT_FIELDS, "abstract", "document", "review", "utterance")
LABELS: Final = (
    "gold_label",
    *LABEL_FIELDS,
    "target",
    "score",
    "similarity",
    "rating",
    "sentiment",
    "relation",
)
"""The first of them that a file has is its label."""
SECTION_ID: Final = "###"
"""Stands before the name of a document in a file of sections."""
GROUPS: Final = (SECTION_ID, *(name for name in ID_FIELDS if name not in ("id", "_id", "uid")))
"""Names of the document that a row is a part of."""
ROW_IDS: Final = ("id", "_id", "uid", "guid", "index", "idx", "pairid")
KNOWN: Final = frozenset((*TEXTS, *LABELS, *GROUPS, *ROW_IDS, *(name for pair in PAIRS for name in pair), "title"))
