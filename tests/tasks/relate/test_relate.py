"""The task relate: what is told from the data, what is refused, scores as scikit-learn computes them, real files."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks.classify.scores import ClassifyAnswer
from alembert.tasks.example import Coverage, ReadResult
from alembert.tasks.reading import SplitShares, split_examples
from alembert.tasks.relate.data import RelateExample, RelateSettings, example_from_marked_text
from alembert.tasks.relate.files import (
    DISCONTINUOUS_ENTITIES,
    OVERLAPPING_ENTITIES,
    UNLINKED_RELATIONS,
    RelateRewriter,
)
from alembert.tasks.relate.pairs import CandidatePair
from alembert.tasks.relate.rows import ENTITY_MARKERS
from alembert.tasks.relate.scores import (
    RelatePrediction,
    RelationResults,
    build_sample_metric,
    compute_scores,
)
from alembert.tasks.relate.task import RelateTask
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

SHARED = Path(__file__).resolve().parents[4] / "shared/data/relation"
USUAL = RelateSettings()
LABELS = ("activates", "binds", "none")


def read(path: Path, content: str) -> ReadResult[RelateExample]:
    path.write_text(content, encoding="utf8")
    return RelateTask.read([path], USUAL, ReadOptions())


def rows(*labelled: tuple[str, str]) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in labelled)


# -- reading


def test_rows_without_two_marked_entities_are_set_aside_with_their_line(tmp_path: Path) -> None:
    content = rows(("<< a >> [[ b ]]", "x"), ("nothing", "x"), ("<< a >>", "y"), ("<e1>a</e1> <e2>b</e2>", "y"))
    found = read(tmp_path / "train.txt", content)
    assert len(found.examples) == 2
    assert [each.position for each in found.set_aside] == ["line 2", "line 3"]


def test_a_table_of_stand_ins_is_read_with_and_without_header(tmp_path: Path) -> None:
    lines = "".join(f"@GENE$ {n} in @DISEASE$\t{n % 2}\n" for n in range(9))
    assert len(read(tmp_path / "a.tsv", lines).examples) == 9
    with_header = "index\tsentence\tlabel\n" + "".join(f"{n}\t{line}" for n, line in enumerate(lines.splitlines(True)))
    assert len(read(tmp_path / "b.tsv", with_header).examples) == 9


PUBTATOR = """1|t|Abc lowers Ras.
1|a|Def does not.
1\t0\t3\tAbc\tChemical\tD1
1\t11\t14\tRas\tGene\tG1
1\t16\t19\tDef\tChemical\tD2
1\tInhibits\tD1\tG1
"""


def test_relations_between_concepts_of_pubtator_are_read(tmp_path: Path) -> None:
    found = read(tmp_path / "train.txt", PUBTATOR)
    task = RelateTask.learn(found.examples, RelateSettings(max_distance=1))
    assert task.rules.by_concept
    assert task.gold_answers(found.examples[0]) == ["Inhibits", "none"]


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Abc", "lowers", "Ras", "Def", ".")
TOKENIZER = Tokenizer.from_vocabulary(Vocabulary.from_pieces(*WORDS), lowercase=False).with_markers(ENTITY_MARKERS)
LOOSE = PUBTATOR + "1\tInhibits\tD2\tG7\n"
"""With a relation between Def and a gene that no row has."""


def test_an_unlinked_relation_is_counted_and_said(tmp_path: Path) -> None:
    found = read(tmp_path / "train.txt", LOOSE)
    assert {each.reason: each.count for each in found.remarks} == {UNLINKED_RELATIONS: 1}
    assert len(found.set_aside) == 1


def test_a_pair_that_an_unlinked_relation_may_mean_is_not_trained_on(tmp_path: Path) -> None:
    example = read(tmp_path / "train.txt", LOOSE).examples[0]
    task = RelateTask.learn([example], RelateSettings(max_distance=1))
    (scored,), (trained,) = (each.encode([example], TOKENIZER, 64) for each in (task, task.for_training()))
    labels = [[task.labels[int(row.labels[0])] for row in each.rows] for each in (scored, trained)]  # type: ignore[index]
    assert labels == [["Inhibits", "none"], ["Inhibits"]]


def test_an_unlinked_relation_is_missed(tmp_path: Path) -> None:
    example = read(tmp_path / "train.txt", LOOSE).examples[0]
    task = RelateTask.learn([example], RelateSettings(max_distance=1))
    (encoded,) = task.encode([example], TOKENIZER, 64)
    layout = encoded.layout
    right = RelatePrediction(
        layout.pairs, tuple(ClassifyAnswer(label=pair.label) for pair in layout.pairs), encoded.coverage
    )
    scores = task.score([example], [right])
    assert scores.by_label["Inhibits"] == {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2}
    assert (scores.coverage.gold, scores.coverage.unreachable) == (3, 1)
    assert task.sample_metric([example], [right])(np.array([0, 0])) == pytest.approx(2 / 3)


def test_an_unlinked_relation_survives_augmented_copies(tmp_path: Path) -> None:
    example = read(tmp_path / "train.txt", LOOSE).examples[0]
    (record,) = RelateRewriter().records(example)
    again = read(tmp_path / "copy.jsonl", json.dumps(record) + "\n").examples[0]
    assert again.unlinked == example.unlinked


def test_brat_with_gaps_overlaps_and_events_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "brat"
    folder.mkdir()
    (folder / "1.txt").write_text("Abc or Def lowers Ras.")
    (folder / "1.ann").write_text(
        "T1\tDrug 0 3;7 10\tAbc Def\nT2\tGene 18 21\tRas\nT3\tDrug 7 10\tDef\nR1\tInhibits Arg1:T3 Arg2:T2\n"
        "*\tEquiv T1 T2 T3\n"
    )
    found = RelateTask.read([folder], USUAL, ReadOptions())
    assert {each.reason: each.count for each in found.remarks} == {DISCONTINUOUS_ENTITIES: 1, OVERLAPPING_ENTITIES: 1}
    assert [each.reason for each in found.set_aside] == [
        "relation *2 has 3 arguments, and this task relates two entities"
    ]
    assert RelateTask.learn(found.examples, USUAL).gold_answers(found.examples[0]) == ["none", "Inhibits"]


def test_relations_of_other_tools_are_read_and_broken_ones_set_aside(tmp_path: Path) -> None:
    entities = [
        {"id": 3, "start": 0, "end": 3, "label": "drug"},
        {"id": 4, "start": 11, "end": 14, "label": "gene"},
    ]
    relations = [
        {"id": 1, "from_id": 3, "to_id": 4, "type": "inhibits"},
        {"head": 3, "tail": 9, "type": "x"},
        "odd",
    ]
    line = {"id": "d", "text": "Abc lowers Ras.", "entities": entities, "relations": relations}
    found = read(tmp_path / "x.jsonl", json.dumps(line) + "\n")
    assert [(each.head, each.tail, each.label) for each in found.examples[0].links or ()] == [("3", "4", "inhibits")]
    assert len(found.set_aside) == 2


def test_sentences_with_other_entities_marked_stay_together_in_a_split(tmp_path: Path) -> None:
    texts = [(f"{n}: << a >> {n} [[ b ]] c", f"{n}: << a >> {n} b [[ c ]]") for n in range(20)]
    found = read(tmp_path / "x.txt", rows(*((text, "ab"[n % 2]) for pair in texts for n, text in enumerate(pair))))
    train, dev, _ = split_examples(found.examples, SplitShares(80, 20), seed=1)
    assert (len(train), len(dev)) == (32, 8)
    assert not {each.group_id for each in train} & {each.group_id for each in dev}
    assert len({each.key for each in found.examples}) == 40


# -- what is told


def learnt(*labelled: tuple[str, str], **settings: Any) -> RelateTask:
    examples = [example_from_marked_text(text, [label], id=str(n)) for n, (text, label) in enumerate(labelled)]
    return RelateTask.learn(examples, RelateSettings(**settings))


PAIR = "<< a >> [[ b ]]"


@pytest.mark.parametrize(
    ("labels", "settings", "negative"),
    [
        (["binds", "inhibits"], {}, None),
        (["0", "1"], {}, "0"),
        (["Other", "binds", "inhibits"], {}, "Other"),
        (["CPR:3", "false"], {}, "false"),
        (["DDI-false", "DDI-effect"], {}, "DDI-false"),
        (["no_relation", "binds"], {"negative_label": ""}, None),
        (["unclear", "binds"], {"negative_label": "unclear"}, "unclear"),
        (["none", "other", "binds"], {}, None),
    ],
)
def test_the_label_of_no_relation_is_told_or_asked_for(
    labels: list[str], settings: dict[str, Any], negative: str | None
) -> None:
    assert learnt(*((PAIR, label) for label in labels), **settings).rules.negative == negative


def test_a_negative_label_that_does_not_occur_is_refused() -> None:
    with pytest.raises(BadSetting, match="no training example has that label; they have a, b"):
        learnt((PAIR, "a"), (PAIR, "b"), negative_label="c")


def test_decisions_say_what_marks_mean_and_when_micro_f1_is_accuracy() -> None:
    told = " ".join(learnt((PAIR, "a"), (PAIR, "b")).describe())
    assert "two marked entities (<< >> and [[ ]])" in told
    assert "always comes first in the text" in told
    assert "equals accuracy" in told


def test_marks_that_tell_a_direction_are_not_called_undirected() -> None:
    told = " ".join(learnt((PAIR, "a"), ("[[ b ]] << a >>", "b")).describe())
    assert "always comes first" not in told


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no entity at all", "give a tagger before this model"),
        ("<< a >> alone", r"expected two\.$"),
        ("@GENE$ and @DISEASE$", "Use data in the same form"),
    ],
)
def test_texts_without_a_pair_are_refused(text: str, sentence: str) -> None:
    task = learnt((PAIR, "a"), (PAIR, "b"))
    with pytest.raises(BadInput, match=sentence):
        task.check(task.examples_from_texts([text]))


def test_an_unknown_stand_in_is_refused() -> None:
    task = learnt(("@GENE$ @DISEASE$", "0"), ("@DISEASE$ @GENE$", "1"))
    with pytest.raises(BadInput, match=r"@CHEMICAL\$, which this task does not know; it knows @DISEASE\$, @GENE\$"):
        task.check(task.examples_from_texts(["@CHEMICAL$ @GENE$"]))


def test_an_unknown_relation_is_refused_with_its_place() -> None:
    task = learnt((PAIR, "a"), (PAIR, "b"))
    with pytest.raises(BadInput, match=r"dev\.txt:3 has the relation 'c'"):
        task.check([example_from_marked_text(PAIR, ["c"], id="1", where="dev.txt:3")])


def test_the_label_of_a_line_is_no_part_of_its_text() -> None:
    (example,) = RelateTask.examples_from_texts([json.dumps({"text": PAIR, "label": "a"})])
    assert (example.form, example.text) == ("marked", PAIR)


def test_a_json_object_with_entities_can_be_predicted() -> None:
    line = {"text": "Abc.", "entities": [{"id": "T1", "label": "x", "spans": [[0, 3]]}]}
    (example,) = RelateTask.examples_from_texts([json.dumps(line)])
    assert (example.form, example.text, len(example.mentions)) == ("document", "Abc.", 1)


# -- scores


def compared(pairs: list[tuple[str, str | None]], negative: str | None) -> RelationResults:
    """Three pairs an example."""
    parts = [pairs[start : start + 3] for start in range(0, len(pairs), 3)]
    predictions = [
        RelatePrediction(
            tuple(CandidatePair(0, 1, gold) for gold, _ in part),
            tuple(ClassifyAnswer(label=guess) for _, guess in part),
            Coverage(examples=1),
        )
        for part in parts
    ]
    return RelationResults.of(LABELS, negative, predictions, [()] * len(predictions))


PAIRS = st.lists(
    st.tuples(st.sampled_from(LABELS), st.one_of(st.none(), st.sampled_from(LABELS))), min_size=1, max_size=20
)


@given(PAIRS, st.sampled_from(["none", None]))
def test_scores_are_those_of_scikit_learn(pairs: list[tuple[str, str | None]], negative: str | None) -> None:
    gold, guess = [one for one, _ in pairs], [other or "" for _, other in pairs]
    found = compute_scores(compared(pairs, negative), "micro_f1", Coverage()).measures
    occurring = [label for label in LABELS if label in gold or label in guess]

    def reference(average: str, without: str | None) -> float:
        labels = [label for label in occurring if label != without]
        return float(f1_score(gold, guess, labels=labels, average=average, zero_division=0)) if labels else 0.0

    for average in ("micro", "macro"):
        assert found[f"{average}_f1"] == pytest.approx(reference(average, negative))
        if negative:
            assert found[f"{average}_f1_with_negative"] == pytest.approx(reference(average, None))
    assert found["accuracy"] == pytest.approx(accuracy_score(gold, guess))


@given(PAIRS, st.sampled_from(["micro_f1", "macro_f1", "accuracy"]), st.data())
def test_the_measure_of_a_sample_is_the_score_of_its_examples(
    pairs: list[tuple[str, str | None]], main: str, data: st.DataObject
) -> None:
    whole = compared(pairs, "none")
    numbers = data.draw(st.lists(st.integers(0, len(whole.counts_N) - 1), min_size=1, max_size=5))
    drawn = [pair for number in numbers for pair in pairs[3 * number : 3 * number + 3]]
    score = compute_scores(compared(drawn, "none"), main, Coverage()).value
    assert build_sample_metric(whole, main)(np.array(numbers)) == pytest.approx(score)


@pytest.mark.parametrize(("last", "is_near"), [("binds", True), ("none", False)], ids=["one for all", "all right"])
def test_a_model_that_says_one_label_is_called_near_chance(last: str, is_near: bool) -> None:
    pairs: list[tuple[str, str | None]] = [("binds", "binds"), ("binds", "binds"), ("none", last)]
    notes = compute_scores(compared(pairs, None), "micro_f1", Coverage()).notes
    assert [note.startswith("Near chance: always saying binds") for note in notes] == [True] * is_near


def test_without_a_negative_class_micro_f1_is_accuracy() -> None:
    found = compute_scores(compared([("activates", "binds"), ("binds", "binds")], None), "micro_f1", Coverage())
    assert found.measures["micro_f1"] == found.measures["accuracy"] == 0.5
    assert "micro_f1_with_negative" not in found.measures


# -- settings


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pooling": "last"}, "`pooling` of the task is 'last'"),
        ({"max_distance": -1}, "`max_distance` of the task is -1"),
        ({"max_length": 8}, "at least 16"),
        ({"main": "mcc"}, "`main`"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        RelateSettings(**settings)


# -- real files


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/relation")
@pytest.mark.parametrize(
    ("file", "count", "labels"),
    [
        ("chemprot/train.txt", 4169, 13),
        ("chemprot/dev.txt", 2427, 12),
        ("chemprot/test.txt", 3469, 12),
        ("GAD/train.tsv", 4796, 2),
        ("GAD/test.tsv", 534, 2),
        ("GAD/dev.tsv", 0, 0),
    ],
)
def test_real_files_are_read_whole(file: str, count: int, labels: int) -> None:
    found = RelateTask.read([SHARED / file], USUAL, ReadOptions())
    named = Counter(link.label for each in found.examples for link in each.links or ())
    assert (len(found.examples), len(named), named.total()) == (count, labels, count)
    assert [each.reason for each in found.set_aside] == ([] if count else ["the file is empty"])


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/relation")
def test_labels_of_real_files_are_those_that_are_written() -> None:
    path = SHARED / "chemprot/train.txt"
    written = [json.loads(line)["label"] for line in path.read_text(encoding="utf8").splitlines()]
    found = RelateTask.read([path], USUAL, ReadOptions()).examples
    assert [link.label for each in found for link in each.links or ()] == written
