"""A case for each task and each of its heads: settings, and labelled lines made of the embedded sample."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembert import sample
from alembert.tasks.generate.decoding import DecodeSettings
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

LONGEST = 64
LEXICONS = tuple(
    f"{label}={Path(__file__).parent / 'lexicons' / name}"
    for label, name in (("disease", "disease.tsv"), ("drug", "chemical.txt"))
)
LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789-.,()%/'"]
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{each}" for each in LETTERS)),
    lowercase=True,
)


@dataclass(frozen=True)
class Case:
    """A task with settings and a file of examples."""

    task: str
    settings: dict[str, Any]
    lines: Callable[[], list[dict[str, Any]]]


def tagged() -> list[dict[str, Any]]:
    return [
        {
            "id": passage.id,
            "text": passage.text[:150],
            "entities": [
                {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
                for n, each in enumerate(passage.entities)
                if each.end <= 150
            ],
        }
        for passage in sample.load_passages("en")[:24]
    ]


def topics() -> list[dict[str, Any]]:
    return [{"id": p.id, "text": p.text[:150], "label": p.topic} for p in sample.load_passages("en")[:24]]


def several_topics() -> list[dict[str, Any]]:
    return [{**line, "label": [line["label"], "medicine"]} for line in topics()]


def numbers() -> list[dict[str, Any]]:
    return [{**line, "label": line["text"].count("e") / 7} for line in topics()]


def pairs() -> list[dict[str, Any]]:
    return [
        {"a": p.text[:90], "b": p.text[60:180], "label": ["no", "yes"][n % 2]}
        for n, p in enumerate(sample.load_passages("en")[:24])
    ]


def choices() -> list[dict[str, Any]]:
    words = ["imatinib", "asthma", "kras", "warfarin", "sepsis"]
    return [
        {"question": p.text[:60], "choices": words[: 4 + n % 2], "answer": n % 4}
        for n, p in enumerate(sample.load_passages("en")[:24])
    ]


def choices_about_passages() -> list[dict[str, Any]]:
    passages = sample.load_passages("en")
    return [{**line, "passage": p.text[60:180]} for line, p in zip(choices(), passages, strict=False)]


def questions() -> list[dict[str, Any]]:
    return [line for line in questions_or_none() if line["answers"]]


def questions_or_none() -> list[dict[str, Any]]:
    return [
        {
            "id": asked.id,
            "question": asked.question,
            "context": passage.text,
            "answers": [{"text": passage.text[a:b], "answer_start": a} for a, b in asked.answers],
            "is_impossible": not asked.answers,
        }
        for passage in sample.load_passages("en")[:24]
        for asked in passage.questions
    ]


def yes_or_no() -> list[dict[str, Any]]:
    return [
        {"question": line["question"], "context": line["context"], "answer": ["no", "yes", "maybe"][n % 3]}
        for n, line in enumerate(questions())
    ]


def marked_pairs() -> list[dict[str, Any]]:
    texts = [
        "Case {}: << statins >> and [[ KRAS ]] in some of the older patients.",
        "<< KRAS >>, not [[ {}-A ]].",
    ]
    labels = ["inhibits", "activates", "none"]
    return [{"text": texts[n % 2].format(n), "label": labels[n % 3]} for n in range(24)]


def anonymised_pairs() -> list[dict[str, Any]]:
    texts = ["@GENE$ is linked to @DISEASE$ in mice.", "In @DISEASE$, case {}, no change of @GENE$."]
    return [{"text": texts[n % 2].format(n), "label": str(n // 2 % 2)} for n in range(24)]


def related() -> list[dict[str, Any]]:
    """Two drugs and two genes in two sentences each; the first drug inhibits the second gene."""
    entities = [("drug", 0, 3), ("gene", 8, 11), ("drug", 13, 16), ("gene", 21, 24)]
    named = [{"id": f"T{n}", "label": label, "spans": [[start, end]]} for n, (label, start, end) in enumerate(entities)]
    links = [{"id": "R1", "label": "inhibits", "arguments": [["Arg1", "T0"], ["Arg2", "T3"]]}]
    text = "Abc and ras. Def and raf, case {}."
    return [{"id": f"{n}", "text": text.format(n), "entities": named, "relations": links} for n in range(24)]


def plain_texts() -> list[dict[str, Any]]:
    return [{"text": p.text[:150]} for p in sample.load_passages("en")[:24]]


def triples() -> list[dict[str, Any]]:
    return [
        {"anchor": p.text[:60], "positive": p.text[20:80], "negative": p.text[80:150]}
        for p in sample.load_passages("en")[:24]
    ]


def scored_pairs() -> list[dict[str, Any]]:
    return [
        {"sentence1": p.text[:60], "sentence2": p.text[20:90], "score": n % 6 / 2}
        for n, p in enumerate(sample.load_passages("en")[:24])
    ]


def titled() -> list[dict[str, Any]]:
    return [{"abstract": p.text[30:200], "title": p.text[:30]} for p in sample.load_passages("en")[:24]]


CASES = {
    "answer": Case("answer", {"max_length": 48, "overlap": 12}, questions),
    "answer, none": Case("answer", {}, questions_or_none),
    "answer, label": Case("answer", {"max_length": 48, "overlap": 8}, yes_or_no),
    "choose": Case("choose", {}, choices),
    "choose, passages": Case("choose", {"max_length": 48, "overlap": 8}, choices_about_passages),
    "generate": Case("generate", {"max_target_length": 12, "decoding": DecodeSettings(max_new_tokens=9)}, titled),
    "generate, beam": Case("generate", {"decoding": DecodeSettings(method="beam", count=2, max_new_tokens=9)}, titled),
    "generate, extract": Case("generate", {"kind": "extract", "sentences": 2}, titled),
    "relate": Case("relate", {}, marked_pairs),
    "relate, markers": Case("relate", {"pooling": "markers", "max_length": 48}, marked_pairs),
    "relate, anonymised": Case("relate", {"pooling": "markers"}, anonymised_pairs),
    "relate, documents": Case("relate", {"max_distance": 1}, related),
    "tag": Case("tag", {"max_length": 48, "overlap": 16}, tagged),
    "tag, crf": Case("tag", {"head": "crf", "max_length": 48, "overlap": 16}, tagged),
    "tag, features": Case(
        "tag", {"head": "crf", "case": True, "lexicons": LEXICONS, "max_length": 48, "overlap": 16}, tagged
    ),
    "tag, bioes": Case("tag", {"scheme": "bioes"}, tagged),
    "tag, span": Case("tag", {"head": "span", "max_length": 48, "overlap": 16}, tagged),
    "classify": Case("classify", {}, topics),
    "classify, several": Case("classify", {}, several_topics),
    "classify, number": Case("classify", {}, numbers),
    "classify, pairs": Case("classify", {"max_length": 48, "overlap": 8}, pairs),
    "compare": Case("compare", {}, plain_texts),
    "compare, triples": Case("compare", {"window": 48}, triples),
    "compare, scores": Case("compare", {"pooling": "cls_layer", "normalise": True}, scored_pairs),
    "compare, mean": Case("compare", {"pooling": "mean", "window": 32}, plain_texts),
}
