"""What one should know about the data of a fine-tuning run before a model is trained on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from alembert.tasks.data_report import DataReport, EncodedSplit, build_data_report
from alembert.tasks.example import ReadResult
from alembert.train.finetune.data import PreparedData, PreparedTask


def build_reports(prepared: PreparedData) -> dict[str, DataReport]:
    """Report for each task what one should know about its data before a model is trained on them."""
    return {each.name: _build_report(each, prepared) for each in prepared.tasks}


def _build_report(part: PreparedTask, prepared: PreparedData) -> DataReport:
    divided, data = part.splits, part.spec.data
    left_out = (sentence for files in data.parts for sentence in files.left_out())
    found = build_data_report(
        part.task,
        [
            EncodedSplit("train", ReadResult(divided.train, divided.set_aside, divided.remarks), part.train.encoded),
            EncodedSplit("dev", ReadResult(divided.dev), part.dev.encoded),
        ],
        prepared.tokenizer,
        longest=prepared.max_length,
        tag_problems=part.task.find_tag_problems(data.files, data.options),
        decided=(*divided.notes, *left_out, *_notes_on_shared_texts(part, prepared)),
    )
    return found if part.name == found.task else replace(found, task=f"{part.name} ({found.task})")


def _notes_on_shared_texts(part: PreparedTask, prepared: PreparedData) -> Iterator[str]:
    """Yield how many texts that a task is judged by are trained on for another."""
    keys = {example.key for example in part.splits.dev}
    for other in prepared.tasks:
        shared = keys & {example.key for example in other.splits.train} if other is not part else set()
        if shared:
            yield (
                f"{len(shared):,} development texts are training texts of the task {other.name}, with its answers: scores "
                "on new texts may be lower"
            )
