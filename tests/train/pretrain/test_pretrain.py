"""The verb from end to end on the embedded sample: what comes out, who can open it, and what is refused."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from alembert import artifact, hardware, sample
from alembert.errors import AlreadyDone, BadFile, BadSetting, UserError
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.surgery import with_heads
from alembert.nn.batch import Batch
from alembert.settings import apply_changes, read_toml
from alembert.train import training_run
from alembert.train.pretrain import pretrain as verb
from alembert.train.pretrain.inputs import PretrainStart
from alembert.train.pretrain.pretrain import PretrainRunResult, pretrain
from alembert.train.pretrain.settings import HeldOutSettings, ObjectiveWeights, PretrainSettings, adapt
from alembert.train.progress import RunTotals
from alembert.train.run import RunContext
from alembert.train.runlog import TrainingProgress
from alembert.train.settings import BatchSettings, ModelSettings, OptimiserSettings, SavingSettings, ScheduleSettings

LEARNING = PretrainSettings(
    steps=30,
    objectives=ObjectiveWeights(masked_lm=1.0, next_sentence=1.0, boundaries=0.2),
    batch=BatchSettings(tokens=1536, micro_tokens=768),
    optimiser=OptimiserSettings(learning_rate=3e-3),
    schedule=ScheduleSettings(warmup=0.1),
    evaluation=HeldOutSettings(share=0.1, tokens=3000, times=2),
    saving=SavingSettings(log_every=5),
)
BRIEF = replace(
    LEARNING,
    steps=2,
    objectives=ObjectiveWeights(),
    batch=BatchSettings(tokens=512, micro_tokens=512),
    evaluation=HeldOutSettings(share=0.1, tokens=500, times=0),
    saving=SavingSettings(log_every=1),
)
IDS = [2, 5, 17, 23, 42, 3]


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture(scope="module")
def context(home: Path) -> RunContext:
    return RunContext(cache=home / "cache", workers=1)


@pytest.fixture(scope="module")
def learnt(home: Path, context: RunContext, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PretrainRunResult]:
    """A model that has really learnt something, and what the verb said about it."""
    out = tmp_path_factory.mktemp("learnt") / "model"  # not in `home`: workers may come back to this file
    start = PretrainStart(size="tiny", tokenizer=home / "vocab")
    return out, pretrain([home / "corpus"], out, start, LEARNING, context)


@pytest.fixture
def run(home: Path, context: RunContext, tmp_path: Path) -> Callable[..., Path]:
    """Give a function that runs the verb from scratch with a few changes, and gives the folder."""

    def ran(settings: PretrainSettings = BRIEF, name: str = "out", **options: Any) -> Path:
        start = options.pop("start", PretrainStart(size="tiny", tokenizer=home / "vocab"))
        inputs = options.pop("inputs", [home / "corpus"])
        pretrain(inputs, tmp_path / name, start, settings, replace(context, **options))
        return tmp_path / name

    return ran


def logits_of(folder: Path, head: str = "masked_lm") -> torch.Tensor:
    with torch.inference_mode():
        return open_checkpoint(folder).model(Batch.packed([IDS]))[head]


def foreign(kind: Any, folder: Path) -> Any:
    with torch.inference_mode():
        return kind.from_pretrained(folder).eval()(torch.tensor([IDS]))


# -- what comes out


def test_a_model_from_scratch_learns(learnt: tuple[Path, PretrainRunResult]) -> None:
    _, done = learnt
    assert done.after["masked_lm"]["loss"] < done.before["masked_lm"]["loss"] - 0.8
    assert done.after["boundaries"]["loss"] < 0.5 * done.before["boundaries"]["loss"]
    assert done.done.step == 30


def test_the_published_pair_of_heads_opens_elsewhere_with_the_same_logits(
    learnt: tuple[Path, PretrainRunResult],
) -> None:
    folder, _ = learnt
    found = foreign(transformers.BertForPreTraining, folder)
    torch.testing.assert_close(found.prediction_logits[0], logits_of(folder), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.seq_relationship_logits, logits_of(folder, "next_sentence"), rtol=1e-4, atol=1e-4)


def test_heads_of_our_own_are_left_out_unless_asked_for(
    learnt: tuple[Path, PretrainRunResult], run: Callable[..., Path]
) -> None:
    assert set(open_checkpoint(learnt[0]).blueprint.heads) == {"masked_lm", "next_sentence"}
    everything = run(replace(BRIEF, objectives=LEARNING.objectives, keep_heads="all"))
    assert set(open_checkpoint(everything).blueprint.heads) == {"masked_lm", "next_sentence", "boundaries"}


def test_a_result_can_be_adapted_again(learnt: tuple[Path, PretrainRunResult], run: Callable[..., Path]) -> None:
    folder, done = learnt
    again = run(start=PretrainStart(model=str(folder)))
    first = json.loads((again / "run" / "log.jsonl").read_text().splitlines()[0])
    # Other sequences are made where no pairs are wanted, so the scores are near, not equal.
    assert first["scores"]["masked_lm"]["loss"] == pytest.approx(done.after["masked_lm"]["loss"], abs=0.4)
    found = foreign(transformers.AutoModelForMaskedLM, again)
    torch.testing.assert_close(found.logits[0], logits_of(again), rtol=1e-4, atol=1e-4)


def test_a_causal_model_opens_elsewhere_as_a_decoder(run: Callable[..., Path]) -> None:
    folder = run(replace(BRIEF, objectives=ObjectiveWeights(masked_lm=0.0, causal=1.0)))
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], config["is_decoder"]) == (["BertLMHeadModel"], True)
    found = foreign(transformers.BertLMHeadModel, folder)
    torch.testing.assert_close(found.logits[0], logits_of(folder), rtol=1e-4, atol=1e-4)


def test_raw_files_become_a_corpus_and_a_vocabulary_on_the_way(run: Callable[..., Path], tmp_path: Path) -> None:
    texts = [passage.text for passage in sample.load_passages("en")]
    (tmp_path / "notes.txt").write_text(texts[0], encoding="utf8")
    with gzip.open(tmp_path / "more.jsonl.gz", "wt", encoding="utf8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts[1:30])
    said: list[str] = []
    inputs = [tmp_path / "notes.txt", tmp_path / "more.jsonl.gz"]
    folder = run(inputs=inputs, start=PretrainStart(size="tiny"), cache=tmp_path / "cache", log=said.append)
    assert open_checkpoint(folder).tokenizer is not None
    assert "30 documents" in (folder / "README.md").read_text()
    assert ["Raw files" in said[0], "No tokenizer was given" in said[1]] == [True, True]


def test_a_run_tells_what_it_does(learnt: tuple[Path, PretrainRunResult]) -> None:
    folder, _ = learnt
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"log.jsonl", "settings.toml", "loss.html", "loss.png"} <= names
    found = apply_changes(PretrainSettings(), read_toml(folder / "run" / "settings.toml"), "The file")
    assert found == LEARNING


def test_the_model_card_says_what_was_read_and_learnt(learnt: tuple[Path, PretrainRunResult], home: Path) -> None:
    card = (learnt[0] / "README.md").read_text()
    documents = artifact.open_artifact(home / "corpus").counts["documents"]
    assert f"{documents:,} documents" in card
    assert "masked_lm (weight 1), next_sentence (weight 1), boundaries (weight 0.2)" in card
    assert "30 steps" in card


def test_nothing_needed_to_continue_stays_in_the_result(learnt: tuple[Path, PretrainRunResult]) -> None:
    assert not [path for path in learnt[0].rglob("*") if path.name.startswith(".")]
    assert artifact.verify(learnt[0]).counts["steps"] == 30


@pytest.mark.parametrize(("corpus", "tokens"), [(1000, 100_000), (10**6, 10**7), (10**8, 10**8)])
def test_a_run_of_no_given_length_has_one_that_suits_the_corpus(corpus: int, tokens: int) -> None:
    said: list[str] = []
    assert verb._with_default_length(replace(BRIEF, steps=None), corpus, said.append).tokens == tokens
    assert f"{tokens:,}" in said[0]


def test_dropout_of_the_run_is_not_that_of_the_result(run: Callable[..., Path]) -> None:
    folder = run(replace(BRIEF, model=ModelSettings(dropout=0.3, attention_dropout=0.0)))
    config = json.loads((folder / "config.json").read_text())
    assert (config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]) == (0.1, 0.1)


def test_heads_are_not_trained_alone_if_none_is_fresh(
    learnt: tuple[Path, PretrainRunResult], run: Callable[..., Path]
) -> None:
    said: list[str] = []
    settings = replace(BRIEF, model=ModelSettings(first=("heads",), first_share=1.0))
    folder = run(settings, start=PretrainStart(model=str(learnt[0])), log=said.append)
    assert "No head is fresh, so all parts of the model are trained from the beginning." in said
    token = "encoder.embeddings.token.weight"
    states = [open_checkpoint(each).model.state_dict()[token] for each in (folder, learnt[0])]
    assert not torch.equal(*states)


def test_an_adapted_model_says_what_its_head_had_learnt_alone(
    learnt: tuple[Path, PretrainRunResult], home: Path, context: RunContext, tmp_path: Path
) -> None:
    bare = with_heads(open_checkpoint(learnt[0]), {})
    bare.save(tmp_path / "bare")
    small = HeldOutSettings(share=0.1, tokens=500, times=0)
    settings = replace(adapt(), steps=8, batch=BatchSettings(tokens=512, micro_tokens=512), evaluation=small)
    evaluated = replace(context, held_out_general=home / "sample.jsonl")
    start = PretrainStart(model=str(tmp_path / "bare"))
    done = pretrain([home / "corpus"], tmp_path / "out", start, settings, evaluated)
    assert done.head_alone["masked_lm"]["loss"] != done.before["masked_lm"]["loss"]
    assert "masked_lm, general text" in done.after
    assert done.summary is not None
    assert f"after the head alone: {done.head_alone['masked_lm']['loss']:.3f}; final: " in done.summary
    assert "The head was still learning" in done.summary
    manifest = artifact.verify(tmp_path / "out")
    assert manifest.notes == {"adaptation": done.summary}
    assert manifest.counts["steps_of_head_alone"] == 2
    assert [each.name for each in manifest.inputs] == ["corpus", "bare", "sample.jsonl"]
    assert "after the head alone" in (tmp_path / "out/README.md").read_text()
    before, after = (open_checkpoint(tmp_path / name).model.state_dict() for name in ("bare", "out"))
    moved = {name for name, weight in before.items() if name in after and not torch.equal(weight, after[name])}
    assert moved
    assert not [name for name in moved if name.startswith("encoder.embeddings.")]


def scored(loss: float, general: float | None = None) -> dict[str, dict[str, float]]:
    more = {} if general is None else {"masked_lm, general text": {"loss": general}}
    return {"masked_lm": {"loss": loss}, **more}


@pytest.mark.parametrize(
    ("alone", "after", "plateaued", "sentence"),
    [
        (
            scored(5.1, 4.9),
            scored(4.6, 4.95),
            True,
            "final: 4.600; general text 4.900 -> 4.950. The run was long enough",
        ),
        (
            scored(5.1),
            scored(5.09),
            True,
            "final: 5.090. The run was too short to teach the model more than its own head",
        ),
        (scored(5.1), scored(4.6), False, "final: 4.600. The head was still learning"),
    ],
)
def test_the_summary_says_whether_a_run_was_long_enough(
    alone: dict[str, Any], after: dict[str, Any], plateaued: bool, sentence: str
) -> None:
    summary = PretrainRunResult({}, after, RunTotals(), alone, plateaued).summary
    assert summary is not None
    assert sentence in summary
    assert PretrainRunResult({}, after, RunTotals()).summary is None


def test_general_text_without_a_token_is_refused(run: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UserError):
        run(held_out_general=tmp_path / "empty.txt")


# -- the same command again


def test_the_same_call_says_that_all_is_done(run: Callable[..., Path]) -> None:
    folder = run()
    before = artifact.hash_input(folder)
    with pytest.raises(AlreadyDone, match="complete already"):
        run()
    assert artifact.hash_input(folder) == before


def test_a_stopped_run_is_continued_by_the_same_call(run: Callable[..., Path]) -> None:
    whole = run(replace(BRIEF, steps=4), "whole")

    def stop(progress: TrainingProgress) -> None:
        if progress.step == 3:
            raise KeyboardInterrupt

    settings = replace(BRIEF, steps=4, saving=SavingSettings(steps=1))
    with pytest.raises(KeyboardInterrupt):
        run(settings, "parts", on_progress=stop)
    steps: list[int] = []
    parts = run(settings, "parts", on_progress=lambda progress: steps.append(progress.step))
    weights = [(folder / "model.safetensors").read_bytes() for folder in (whole, parts)]
    assert steps == [3, 4]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("changes", [{"seed": 2}, {"steps": 3}])
def test_other_settings_do_not_go_into_a_complete_folder(run: Callable[..., Path], changes: dict[str, Any]) -> None:
    run()
    with pytest.raises(BadFile, match=r"complete Checkpoint already\. Choose a new folder"):
        run(replace(BRIEF, **changes))


def test_other_settings_do_not_continue_a_run(run: Callable[..., Path]) -> None:
    def stop(_: TrainingProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(on_progress=stop)
    with pytest.raises(BadFile, match=r"out\.partial holds unfinished work with other settings"):
        run(replace(BRIEF, seed=2))


def test_a_complete_folder_is_replaced_when_asked_for(run: Callable[..., Path]) -> None:
    run()
    assert artifact.open_artifact(run(replace(BRIEF, seed=2), overwrite=True)).seed == 2


def test_another_hub_model_is_another_run() -> None:
    plans = [
        verb._PretrainRun(
            [], Path("out"), PretrainStart(model=f"hub:some/{name}"), BRIEF, RunContext(), verb.Processes()
        )._plan()
        for name in ("one", "two")
    ]
    assert plans[0] != plans[1]


# -- what is refused


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora that lack something: `one` has a single document, `plain` no entities."""
    from alembert.corpus.build import build

    folder = tmp_path_factory.mktemp("poor")
    texts = [passage.text for passage in sample.load_passages("en")][:8]
    for name, count in (("one", 1), ("plain", 8)):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts[:count])
        (folder / f"{name}.jsonl").write_text(lines)
        build([folder / f"{name}.jsonl"], folder / name, workers=1)
    return folder


@pytest.fixture(scope="module")
def misfit(home: Path, learnt: tuple[Path, PretrainRunResult], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints that cannot be used: `bare` has no tokenizer, `narrow` fewer rows than pieces."""
    from alembert.files.checkpoint import Checkpoint
    from alembert.files.family import Blueprint
    from alembert.nn.config import preset
    from alembert.nn.heads import HeadSpec

    folder = tmp_path_factory.mktemp("misfit")
    blueprint = Blueprint(config=preset("tiny", vocab_size=50), heads={"masked_lm": HeadSpec(kind="masked_lm")})
    for name in ("bare", "narrow"):
        Checkpoint.new(blueprint).save(folder / name)
    opened = open_checkpoint(learnt[0])
    assert opened.tokenizer is not None
    (folder / "narrow" / artifact.MANIFEST).unlink()
    opened.tokenizer.save(folder / "narrow")
    return folder


def refusal(work: Path, settings: PretrainSettings, start: PretrainStart, *inputs: Path) -> str:
    """Run what must be refused, in an empty folder; give the sentence if nothing is left behind."""
    work.mkdir()
    with pytest.raises(UserError) as refused:
        pretrain(inputs, work / "out", start, settings, RunContext(workers=1))
    assert list(work.iterdir()) == []
    return str(refused.value)


def with_weights(**weights: float) -> PretrainSettings:
    return replace(BRIEF, objectives=ObjectiveWeights(**weights))


@pytest.mark.parametrize(
    ("corpus", "settings", "sentence"),
    [
        ("nothing", BRIEF, "does not exist. Check the path."),
        ("one", with_weights(next_sentence=1.0), "Give more documents, or set next_sentence to 0"),
        ("plain", with_weights(boundaries=1.0), "corpus build --lexicon LABEL=FILE"),
        ("plain", replace(BRIEF, masks=replace(BRIEF.masks, unit="entity")), "or use --set masks.unit=word"),
    ],
)
def test_a_corpus_that_lacks_something_is_refused(
    home: Path, poor: Path, tmp_path: Path, corpus: str, settings: PretrainSettings, sentence: str
) -> None:
    start = PretrainStart(size="tiny", tokenizer=home / "vocab")
    assert sentence in refusal(tmp_path / "work", settings, start, poor / corpus)


def test_a_corpus_of_which_nothing_is_left_to_train_on_is_refused(home: Path, poor: Path, tmp_path: Path) -> None:
    start = PretrainStart(size="tiny", tokenizer=home / "vocab")
    context = RunContext(cache=tmp_path / "cache", workers=1)
    with pytest.raises(BadSetting, match=r"held out.*lower the `share` of \[evaluation\]"):
        pretrain([poor / "one"], tmp_path / "out", start, BRIEF, context)
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}


def test_a_single_document_can_be_learnt_when_nothing_is_held_out(poor: Path, run: Callable[..., Path]) -> None:
    settings = replace(BRIEF, evaluation=HeldOutSettings(share=0.0))
    folder = run(settings, inputs=[poor / "one"])
    assert artifact.open_artifact(folder).counts["steps"] == 2


def test_an_unknown_size_is_refused_before_anything_is_made(poor: Path, tmp_path: Path) -> None:
    said = refusal(tmp_path / "work", BRIEF, PretrainStart(size="tinny"), poor / "plain.jsonl")
    assert "no model size `tinny`" in said


def test_a_tokenizer_that_is_not_there_is_refused(poor: Path, tmp_path: Path) -> None:
    start = PretrainStart(size="tiny", tokenizer=tmp_path / "nothing")
    assert "nothing" in refusal(tmp_path / "work", BRIEF, start, poor / "plain.jsonl")


def test_sequences_longer_than_the_model_are_refused(
    learnt: tuple[Path, PretrainRunResult], poor: Path, tmp_path: Path
) -> None:
    settings = replace(BRIEF, sequences=replace(BRIEF.sequences, long_length=513))
    said = refusal(tmp_path / "work", settings, PretrainStart(model=str(learnt[0])), poor / "plain.jsonl")
    assert "Sequences of 513 tokens are longer than the model's limit of 512" in said


@pytest.mark.parametrize(
    ("model", "sentence"),
    [("bare", "has no tokenizer"), ("narrow", "more than the 50 rows"), ("nothing", "There is no folder")],
)
def test_a_model_that_cannot_be_used_is_refused(
    misfit: Path, poor: Path, tmp_path: Path, model: str, sentence: str
) -> None:
    start = PretrainStart(model=str(misfit / model))
    assert sentence in refusal(tmp_path / "work", BRIEF, start, poor / "plain")


def test_a_corpus_and_raw_files_together_are_refused(home: Path, poor: Path, tmp_path: Path) -> None:
    start = PretrainStart(size="tiny", tokenizer=home / "vocab")
    said = refusal(tmp_path / "work", BRIEF, start, poor / "plain", poor / "plain.jsonl")
    assert "Give one Corpus, or raw files alone" in said


def test_no_input_is_refused(tmp_path: Path) -> None:
    assert "No input was given" in refusal(tmp_path / "work", BRIEF, PretrainStart(size="tiny"))


def test_a_file_where_the_result_should_go_is_refused_before_anything_is_made(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BadFile, match="is a file, and a folder is to be written there"):
        pretrain([home / "corpus"], tmp_path / "out", PretrainStart(size="tiny"), BRIEF)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "mine"


def test_a_folder_of_others_is_left_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(BadFile, match=r"is left alone\. Choose a new folder"):
        pretrain([home / "corpus"], tmp_path / "out", PretrainStart(size="tiny"), BRIEF)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_settings_that_only_the_loop_can_judge_leave_nothing_behind(
    run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BadSetting("Not with this model.")

    monkeypatch.setattr(training_run, "TrainingLoop", refuse)
    with pytest.raises(BadSetting, match="Not with this model"):
        run()
    assert list(tmp_path.iterdir()) == []
