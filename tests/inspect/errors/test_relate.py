"""Errors of relation models: each pair is a text with its own right and guessed label."""

from dataclasses import replace
from pathlib import Path

from alembert.corpus.readers.contract import ReadOptions
from alembert.inspect.errors import find_errors
from alembert.tasks.relate.data import RelateSettings
from alembert.tasks.relate.pairs import PairRules, list_candidate_pairs
from alembert.tasks.relate.scores import RelatePrediction
from alembert.tasks.relate.task import RelateTask
from scripted_models import Engine, answer, scripted

LINES = """{"id": "1", "text": "Abc lowers Ras. Def too.", "entities": [{"id": "T1", "label": "drug", "spans": [[0, 3]]}, {"id": "T2", "label": "gene", "spans": [[11, 14]]}], "relations": [{"id": "R1", "label": "inhibits", "arguments": [["Arg1", "T1"], ["Arg2", "T2"]]}]}
"""


def test_a_wrong_pair_is_shown_with_its_entities(tmp_path: Path) -> None:
    rules = PairRules(types=(("drug", "gene"),), negative="none")
    task = RelateTask(RelateSettings(), "document", ("inhibits", "none"), rules)

    def say(said: object, coverage: object) -> RelatePrediction:
        return RelatePrediction(pairs, (answer("none", 0.9),), coverage)  # type: ignore[arg-type]

    engine = Engine(Engine().tokenizer.with_markers(task.special_tokens))
    path = tmp_path / "dev.jsonl"
    path.write_text(LINES)
    model = replace(scripted(task, Path("rel"), say=say), engine=engine)
    (example,) = task.read([path], task.settings, ReadOptions()).examples
    pairs = tuple(list_candidate_pairs(example, rules))
    found = find_errors(model, [path])
    assert found.summary == "1 of 1 answers are wrong"
    assert found.worst[0].texts == ("Abc lowers Ras. | Abc (drug) -> Ras (gene)",)
    assert found.worst[0].problem == "right: inhibits; guessed: none (0.90)"
