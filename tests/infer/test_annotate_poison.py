"""Poisoned documents cost nothing but themselves, and memory does not grow with the number of documents."""

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from alembert.corpus.document import Document
from alembert.infer.annotate import AnnotateSettings, annotate
from alembert.infer.annotate_chunks import PART_FORMATS
from alembert.infer.annotate_pipeline import Pipeline, PipelineOutput
from alembert.tasks.example import Coverage
from finding_models import finder
from poisoned import ids_in, line, text, write_poisoned


@pytest.mark.parametrize("form", list(PART_FORMATS))
def test_each_id_is_in_the_output_or_set_aside_once(form: str, tmp_path: Path) -> None:
    inputs = write_poisoned(tmp_path / "in")
    pipeline = Pipeline.from_models([finder(tmp_path / "model")])
    settings = AnnotateSettings(format=form, part_characters=2000)
    counts = annotate(pipeline, inputs, tmp_path / "out", settings).manifest.counts
    aside = [json.loads(each) for each in (tmp_path / "out/set-aside.jsonl").read_text().splitlines()]
    parts = sorted((tmp_path / "out").glob("part-*"))
    written = [name for path in parts for name in ids_in(path)]
    assert len(written) == counts["written"]
    assert len(aside) == counts["set aside"] == counts["read"] - counts["written"]
    names = [*written, *(each["id"] for each in aside if each["id"])]
    assert len(set(names)) == len(names)
    assert {"empty", "blank", "huge", "model"}.isdisjoint(written)
    assert {f"good.{n}" for n in range(12)} | {"nul", "surrogate", "word", "d", "last"} <= set(written)
    assert {"good.0", "huge", "packed.0"} <= set(names)


def test_the_reasons_say_what_was_wrong(tmp_path: Path) -> None:
    inputs = write_poisoned(tmp_path / "in")
    annotate(Pipeline.from_models([finder(tmp_path / "model")]), inputs, tmp_path / "out")
    aside = [json.loads(each) for each in (tmp_path / "out/set-aside.jsonl").read_text().splitlines()]
    reasons = {each["id"] or f"{each['file']}, {each['position']}": each["reason"] for each in aside}
    assert "max_characters" in reasons["huge"]
    assert reasons["model"] == "the model fails on it: ValueError"
    assert "JSON" in reasons["a.jsonl, line 18"]
    assert "utf-8" in reasons["a.jsonl, line 12"]
    assert reasons["c.jsonl, file"] == "the file is empty"
    assert any(name.startswith("b.jsonl.gz, after line") for name in reasons)
    assert not any("asp" in reason for reason in reasons.values())


class Silent:
    """Finds nothing, at once: what is left is the work around a model."""

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        return (PipelineOutput(document, Coverage()) for document in documents)


def peak(tmp_path: Path, documents: int) -> int:
    source = tmp_path / f"{documents}.jsonl"
    with source.open("wb") as file:
        file.writelines(line(str(n), text(n) * 40) for n in range(documents))
    pipeline = Pipeline(stages=(Silent(),), folders=(), tasks=("tag",), output_fields=("entities",), replaced_fields=())
    tracemalloc.start()
    annotate(pipeline, [source], tmp_path / f"out-{documents}")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path: Path) -> None:
    peak(tmp_path, 10)  # what is loaded and cached once
    assert peak(tmp_path, 5000) <= 1.2 * peak(tmp_path, 500)
