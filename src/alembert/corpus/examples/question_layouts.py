"""Read questions from the layouts of their files into the same plain fields; nothing is checked yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from alembert.corpus.examples.records import read_records
from alembert.corpus.readers.contract import SetAside
from alembert.corpus.readers.jsonlines import check_json_value, is_json_object, iter_json_values, read_json_records
from alembert.corpus.readers.records import get_field, get_first_field
from alembert.corpus.readers.source import SourceFile

ID_FIELDS: Final = ("id", "_id", "qid", "query_id", "question_id")
QUESTION_FIELDS: Final = ("question", "query", "query_text", "body", "QUESTION")
PASSAGE_FIELDS: Final = ("context", "passage", "context_text", "paragraph", "text", "abstract", "CONTEXTS")
ANSWER_FIELDS: Final = ("answers", "answer", "exact_answer")
DECISION_FIELDS: Final = ("final_decision", "label")
ARTICLE_FIELDS: Final = ("title", "article", "document", "pmid", "doc_id", "context_id")
_OBJECT: Final = re.compile(r"\s*\{")


@dataclass(frozen=True, kw_only=True)
class RawQuestion:
    """A question as a file has it."""

    question: Any
    passage: Any
    answers: Any = None
    label: Any = None
    is_impossible: Any = None
    """None if the file does not say."""
    id: str | None = None
    article: str | None = None
    position: str = ""
    any_of: bool = False
    """Whether the answers are synonyms, of which one is enough."""


RawQuestionIterator = Iterator[RawQuestion | SetAside]


def read_raw_questions(source: SourceFile) -> RawQuestionIterator:
    for record in _records(source):
        if isinstance(record, SetAside):
            yield record
        elif isinstance(record, Mapping):
            yield from _read_record(record, source)
        else:
            yield source.set_aside("the record is not a JSON object with named fields")


def _records(source: SourceFile) -> Iterator[Any]:
    """Yield the objects of a JSON file, one per line or one after the other, or the rows of a table or of Parquet."""
    head = source.head(1 << 16).decode(source.encoding(), errors="replace").lstrip("\ufeff \t\r\n")
    if _OBJECT.match(head) and not is_json_object(head.partition("\n")[0]):
        for number, value in enumerate(iter_json_values(source.characters(), source.options.max_record), start=1):
            source.position = f"record {number}"
            yield check_json_value(value, source)
    elif head.startswith(("{", "[")):
        yield from read_json_records(source)
    else:
        for item in read_records(source, source.options):
            if not isinstance(item, SetAside):
                source.position = item.position
            yield item if isinstance(item, SetAside) else item.fields


def _read_record(record: Mapping[str, Any], source: SourceFile) -> RawQuestionIterator:
    if isinstance(record.get("data"), list):
        for number, article in enumerate(record["data"], start=1):
            yield from _read_article(article, f"{source.stem}-{number}", source)
    elif "paragraphs" in record or "qas" in record:
        yield from _read_article(record, None, source)
    elif isinstance(record.get("questions"), list):
        for question in record["questions"]:
            yield from _read_bioasq(question, source)
    elif "snippets" in record:
        yield from _read_bioasq(record, source)
    elif record and all(isinstance(value, Mapping) and "QUESTION" in value for value in record.values()):
        yield from _read_pubmedqa(record)
    else:
        yield _read_fields(record, source)


# -- SQuAD and CMRC


def _read_article(article: Any, name: str | None, source: SourceFile) -> RawQuestionIterator:
    if not isinstance(article, Mapping):
        yield source.set_aside("an article is not a JSON object with paragraphs")
        return
    title = _name(article, ("title", *ID_FIELDS, "context_id")) or name
    for paragraph in article.get("paragraphs") or [article]:
        if not isinstance(paragraph, Mapping) or not isinstance(paragraph.get("qas"), list):
            yield source.set_aside("a paragraph has no list of questions (`qas`)", title)
            continue
        for question in paragraph["qas"]:
            yield _read_question(question, paragraph, title, source)


def _read_question(
    question: Any, paragraph: Mapping[str, Any], article: str | None, source: SourceFile
) -> RawQuestion | SetAside:
    if not isinstance(question, Mapping):
        return source.set_aside("a question is not a JSON object with named fields", article)
    return RawQuestion(
        id=_name(question, ID_FIELDS),
        question=get_first_field(question, QUESTION_FIELDS),
        passage=get_first_field(paragraph, PASSAGE_FIELDS),
        answers=get_first_field(question, ANSWER_FIELDS),
        is_impossible=question.get("is_impossible"),
        article=article,
    )


# -- BioASQ and PubMedQA


def _read_bioasq(question: Any, source: SourceFile) -> RawQuestionIterator:
    """Read factoid and yes/no questions; the answers of a factoid question are synonyms."""
    kind = question.get("type", "factoid") if isinstance(question, Mapping) else None
    if kind not in ("factoid", "yesno"):
        name = _name(question, ID_FIELDS) if isinstance(question, Mapping) else None
        yield source.set_aside(f"the question is of type {kind}; factoid and yesno are answered here", name)
        return
    snippets = question.get("snippets")
    texts = [part.get("text") for part in snippets if isinstance(part, Mapping)] if isinstance(snippets, list) else None
    exact = question.get("exact_answer")
    yield RawQuestion(
        id=_name(question, ID_FIELDS),
        question=get_first_field(question, QUESTION_FIELDS),
        passage=texts,
        answers=exact if kind == "factoid" else None,
        label=exact if kind == "yesno" else None,
        any_of=True,
    )


def _read_pubmedqa(records: Mapping[str, Mapping[str, Any]]) -> RawQuestionIterator:
    for name, record in records.items():
        yield RawQuestion(
            id=name,
            question=record["QUESTION"],
            passage=record.get("CONTEXTS"),
            label=record.get("final_decision"),
            article=name,
        )


# -- plain fields


def _read_fields(record: Mapping[str, Any], source: SourceFile) -> RawQuestion:
    """Read a record with the usual fields, or those of the options: two texts, and the answer as label."""
    options = source.options
    question, passage = options.text if len(options.text) == 2 else (None, None)
    answers = get_field(record, options.label) if options.label else get_first_field(record, ANSWER_FIELDS)
    if isinstance(answers, str):  # a blank one is an empty cell of a table
        answers = {"text": answers, "answer_start": record.get("answer_start")} if answers.strip() else None
    return RawQuestion(
        id=_name(record, ID_FIELDS),
        question=get_field(record, question) if question else get_first_field(record, QUESTION_FIELDS),
        passage=get_field(record, passage) if passage else get_first_field(record, PASSAGE_FIELDS),
        answers=answers,
        label=None if answers is not None else get_first_field(record, DECISION_FIELDS),
        is_impossible=record.get("is_impossible"),
        article=_name(record, (options.id,) if options.id else ARTICLE_FIELDS),
        position=source.position,
    )


def _name(record: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of these fields that holds a name."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return None
