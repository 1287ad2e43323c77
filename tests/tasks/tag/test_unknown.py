"""Unknown stretches: what words in them may be, what they cost, and that nobody is scored by them."""

import json
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile
from alembert.nn.tag_outputs import Crf
from alembert.tasks.runtime.torch import collate_rows
from alembert.tasks.settings import LossSettings
from alembert.tasks.tag.data import TagExample, TagSettings
from alembert.tasks.tag.task import TagTask
from alembert.text.replacement import TextEdit
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)),
    lowercase=True,
)
EXAMPLE = TagExample(id="1", texts=("a b c d e",), entities=((2, 3, "drug"),), unknown=((4, 7),))
"""b is a drug, c and d are unknown, a and e are outside."""


def task(**settings: object) -> TagTask:
    return TagTask(("drug",), TagSettings(**settings))  # type: ignore[arg-type]


def allowed_names(learner: TagTask, example: TagExample) -> list[str]:
    (encoded,) = learner.encode([example], TOKENIZER, 64)
    labels = encoded.rows[0].labels
    assert labels is not None
    return [" ".join(learner.labels[n] for n in np.flatnonzero(row)) for row in labels]


def test_unknown_words_may_have_any_tag() -> None:
    every = "O B-drug I-drug"
    assert allowed_names(task(), EXAMPLE) == ["O", "B-drug", every, every, "O"]


@pytest.mark.parametrize(
    ("scheme", "unknown", "expected"),
    [
        ("bio", (0, 1), "B-drug I-drug"),
        ("bioes", (0, 1), "E-drug S-drug"),
        ("bioes", (4, 5), "B-drug S-drug"),
        ("bioes", (0, 5), "O B-drug I-drug E-drug S-drug"),
    ],
)
def test_an_entity_beside_an_unknown_word_may_be_longer(scheme: str, unknown: tuple[int, int], expected: str) -> None:
    example = TagExample(id="1", texts=("a b c",), entities=((2, 3, "drug"),), unknown=(unknown,))
    assert allowed_names(task(scheme=scheme), example)[1] == expected


def outputs_and_target(learner: TagTask, example: TagExample) -> tuple[torch.Tensor, object]:
    (encoded,) = learner.encode([example], TOKENIZER, 64)
    target = collate_rows([encoded.rows[0]], [0], None)
    width = 2 * 4 + 2 if learner.settings.head == "span" else len(learner.labels)
    outputs = torch.randn(5, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return outputs.requires_grad_(), target


def test_softmax_has_no_loss_at_unknown_words() -> None:
    learner = task()
    outputs, target = outputs_and_target(learner, EXAMPLE)
    loss = learner.loss(torch.nn.Module(), outputs, target, LossSettings())  # type: ignore[arg-type]
    right = -outputs.float().log_softmax(-1)[[0, 1, 4], [0, 1, 0]].sum()
    assert loss.item() == pytest.approx(right.item(), rel=1e-5)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[2:4].abs().max() == 0


def test_a_crf_sums_over_all_tags_of_unknown_words() -> None:
    learner = task(head="crf")
    outputs, target = outputs_and_target(learner, EXAMPLE)
    head = torch.nn.Module()
    head.crf = Crf(3).double()
    for number, weight in enumerate(head.crf.parameters()):
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(number))
    loss = learner.loss(head, outputs, target, LossSettings())  # type: ignore[arg-type]

    def path_score(path: tuple[int, ...]) -> torch.Tensor:
        moves = sum((head.crf.transitions[a, b] for a, b in pairwise(path)), torch.zeros(()))
        return outputs[range(5), path].sum() + moves + head.crf.start[path[0]] + head.crf.end[path[-1]]

    # After O no entity goes on; a row may begin inside an entity, since it may be a part of a text.
    legal = [p for p in product(range(3), repeat=5) if not any(a == 0 and b == 2 for a, b in pairwise(p))]
    right = [path for path in legal if (path[0], path[1], path[4]) == (0, 1, 0)]
    expected = torch.stack([path_score(p) for p in legal]).logsumexp(0) - torch.stack(
        [path_score(p) for p in right]
    ).logsumexp(0)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    (ours,) = torch.autograd.grad(loss, outputs)
    (theirs,) = torch.autograd.grad(expected, outputs)
    assert torch.allclose(ours, theirs, atol=1e-8)


def test_a_span_head_leaves_stretches_with_unknown_words_out() -> None:
    learner = task(head="span")
    example = TagExample(id="1", texts=("a b c d e",), entities=((0, 1, "drug"),), unknown=((6, 7),))
    (encoded,) = learner.encode([example], TOKENIZER, 64)
    assert encoded.rows[0].labels is not None
    assert encoded.rows[0].labels.tolist() == [[0, 0, 0], [-2, 3, 3]]
    outputs, target = outputs_and_target(learner, example)
    loss = learner.loss(torch.nn.Module(), outputs, target, LossSettings())  # type: ignore[arg-type]
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[3].abs().max() == 0
    assert outputs.grad[2].abs().max() > 0


def test_for_a_span_head_an_entity_beside_an_unknown_word_is_unknown() -> None:
    (encoded,) = task(head="span").encode([EXAMPLE], TOKENIZER, 64)
    assert encoded.rows[0].labels is not None
    assert encoded.rows[0].labels.tolist() == [[-2, 1, 1], [-2, 2, 2], [-2, 3, 3]]


def test_unknown_stretches_move_with_the_text_and_are_written() -> None:
    rewriter = task().rewriter()
    made = rewriter.rewrite(EXAMPLE, [[TextEdit(0, 1, "xyz")]], "2")
    assert (made.text, made.entities, made.unknown) == ("xyz b c d e", ((4, 5, "drug"),), ((6, 9),))
    (record,) = rewriter.records(made)
    assert record["meta"]["unknown"] == [[6, 9]]


def read(tmp_path: Path, *records: dict[str, object], min_score: float = 0.5) -> list[TagExample]:
    path = tmp_path / "silver.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return list(task().read_warm_up([path], ReadOptions(), min_score).examples)


def test_a_file_of_the_annotation_format_is_read_with_its_unknown_stretches(tmp_path: Path) -> None:
    entity = {"id": "T1", "label": "drug", "spans": [[2, 3]]}
    record = {"id": "1", "text": "a b c", "entities": [entity], "meta": {"unknown": [[0, 1]]}}
    (example,) = read(tmp_path, record)
    assert (example.entities, example.unknown) == (((2, 3, "drug"),), ((0, 1),))


@pytest.mark.parametrize("span", [[0, 9], [2, 1], [0], "ab", [0.5, 1]])
def test_an_unknown_stretch_that_is_not_in_the_text_is_refused(tmp_path: Path, span: object) -> None:
    with pytest.raises(BadFile, match="not in the text"):
        read(tmp_path, {"id": "1", "text": "a b c", "meta": {"unknown": [span]}})


def test_what_a_model_was_unsure_of_is_unknown(tmp_path: Path) -> None:
    """As `predict --json` and `annotate --format jsonl` write it."""
    predicted = [
        {"start": 0, "end": 1, "label": "drug", "score": 0.9, "text": "a"},
        {"start": 2, "end": 3, "label": "drug", "score": 0.2, "text": "b"},
    ]
    annotated = [
        {"id": f"T{n}", "label": "drug", "spans": [[e["start"], e["end"]]], "attributes": [["score", str(e["score"])]]}
        for n, e in enumerate(predicted)
    ]
    lines = [
        {"id": "1", "text": "a b c", "entities": predicted, "coverage": {"tokens": 5}},
        {"id": "2", "text": "a b c", "entities": annotated},
    ]
    for example in read(tmp_path, *lines):
        assert (example.entities, example.unknown) == (((0, 1, "drug"),), ((2, 3),))
    assert all(len(example.entities or ()) == 2 for example in read(tmp_path, *lines, min_score=0.0))


def test_types_that_the_task_does_not_have_are_refused_with_advice(tmp_path: Path) -> None:
    entity = {"id": "T1", "label": "Medicine", "spans": [[0, 1]]}
    with pytest.raises(BadFile, match=r"'Medicine'.*--lexicon drug=FILE"):
        read(tmp_path, {"id": "1", "text": "a b", "entities": [entity]})


def test_types_that_a_silver_file_never_has_are_unknown_in_it(tmp_path: Path) -> None:
    path = tmp_path / "silver.jsonl"
    entity = {"id": "T1", "label": "drug", "spans": [[0, 1]]}
    path.write_text(json.dumps({"id": "1", "text": "a b", "entities": [entity]}) + "\n")
    learner = TagTask(("drug", "gene"), TagSettings())
    reading = learner.read_warm_up([path], ReadOptions(), 0.5)
    assert allowed_names(learner.for_warm_up(), reading.examples[0])[1] == "O B-gene I-gene"


def test_nobody_is_scored_by_files_with_unknown_stretches() -> None:
    with pytest.raises(BadFile, match="1 of 1 examples have unknown stretches"):
        task().check_gold([EXAMPLE])
