"""`alembert.mix`: weights between a model and what further training has made of it, with a share that is given or chosen.

A share is chosen by development data: models of several shares are fine-tuned shortly, or evaluated as they are if they
have learnt the task already. What was tried lies in the cache beside the result, so that a stopped command goes on, and
is deleted at the end; its scores are kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from alembert.api.documents import (
    Paths,
    SettingsLike,
    StrPath,
    check_arguments,
    model_name,
    settings_table,
    to_local_files,
    to_path,
)
from alembert.api.inference import resolve_model_folder
from alembert.errors import BadSetting, UserError, require_training
from alembert.hub import find_folder, is_hub_id
from alembert.settings import drop_none
from alembert.terminal import note

if TYPE_CHECKING:
    from alembert.artifact import Draft
    from alembert.files.checkpoint import Checkpoint
    from alembert.infer.evaluate import Evaluation

DEFAULT_SHARE: Final = 0.5
SHARES: Final = (0.0, 0.3, 0.5, 0.7, 1.0)
TRIAL_EPOCHS: Final = 2.0
RUN_FOLDER: Final = "run"
SHARES_FILE: Final = "shares.json"


@dataclass(frozen=True, kw_only=True)
class MixResult:
    """A mixed model, its share of the adapted one, and what other shares reached."""

    folder: Path
    share: float
    main: str | None = None
    """Name of the score by which the share was chosen; none: it was given."""
    scores: Mapping[float, float] = field(default_factory=dict)
    """Share -> score on the development data."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        scores = {f"{share:g}": score for share, score in self.scores.items()}
        return {**asdict(self), "folder": str(self.folder), "scores": scores}


@check_arguments
def mix(
    start: StrPath,
    adapted: StrPath,
    *,
    out: StrPath,
    share: float | None = None,
    choose: Paths | None = None,
    train: Paths | None = None,
    task: str | None = None,
    shares: Sequence[float] | None = None,
    epochs: float | None = None,
    seeds: int = 1,
    settings: SettingsLike | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> MixResult:
    """Mix the weights of two models of one shape, such as a model before and after it was adapted to text.

    `share` is the part of `adapted` (0.5 if not given). With `choose`, a labelled development file, several `shares`
    (0, 0.3, 0.5, 0.7 and 1) are tried and the best is kept: each is fine-tuned for `task` on `train` for a few `epochs`
    (2), or evaluated as it is if both models are fine-tuned already. `seeds` and `settings` are those of the
    fine-tuning.
    """
    require_training()
    training = drop_none(epochs=epochs, settings=settings_table(settings) or None)
    _check_choice(share, choose is not None, task, {"train": train, "shares": shares, **training})
    job = MixJob(
        start=model_name(start, "start"),
        adapted=model_name(adapted, "adapted"),
        shares=tuple(map(float, shares or SHARES))
        if choose is not None
        else (DEFAULT_SHARE if share is None else share,),
        dev=to_local_files(choose, "choose"),
        train=to_local_files(train, "train"),
        task=task,
        training={"epochs": TRIAL_EPOCHS, "seeds": seeds, **training},
        device=device,
        progress=progress,
    )
    return job.run(to_path(out, "out"), overwrite=overwrite)


def _check_choice(share: float | None, chooses: bool, task: str | None, others: Mapping[str, Any]) -> None:
    if share is not None and chooses:
        raise BadSetting("Both `share` and `choose` were given. Give the share, or the data that choose it.")
    if others["train"] is not None and task is None:
        raise BadSetting("Name the task that the training examples are for, such as --task tag.")
    needless = [name for name, value in others.items() if value is not None]
    if needless and not chooses:
        raise BadSetting(
            f"`{needless[0]}` is for trying shares. Add `choose` with a development file, or leave it out."
        )


@dataclass(frozen=True, kw_only=True)
class MixJob:
    """A mix that was asked for; several shares are tried on `dev`."""

    start: str
    adapted: str
    shares: tuple[float, ...]
    dev: tuple[Path, ...] = ()
    train: tuple[Path, ...] = ()
    task: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"
    progress: bool = True

    def run(self, out: Path, *, overwrite: bool = False) -> MixResult:
        """Try the shares, and write the mix of the best; the same call continues a run that was stopped."""
        from alembert import artifact
        from alembert.files.checkpoint import CHECKPOINT_KIND

        if artifact.find_finished(out, CHECKPOINT_KIND, **self._plan()) and not overwrite:
            note(f"{out} is complete already, with these settings and inputs.")
            return _read_finished(out)
        artifact.check_can_create(out, CHECKPOINT_KIND, overwrite=overwrite, **self._plan())
        mixed = self._mixer()
        trials = self._trials_folder(out)
        try:
            result = self._choose(mixed, trials, out) if self.dev else MixResult(folder=out, share=self.shares[0])
            with artifact.create(out, CHECKPOINT_KIND, overwrite=overwrite, **self._plan()) as draft:
                self._write(mixed(result.share), draft, result)
        except UserError:
            shutil.rmtree(trials, ignore_errors=True)
            raise
        shutil.rmtree(trials, ignore_errors=True)
        return result

    def _trials_folder(self, out: Path) -> Path:
        """Choose where the shares of this very command are tried."""
        from alembert import artifact
        from alembert.corpus.fetch import CACHE_FOLDER

        plan = self._plan()
        content = {"config": plan["config"], "inputs": [artifact.hash_input(path) for path in plan["inputs"]]}
        return out.absolute().parent / CACHE_FOLDER / f"mix-{artifact.hash_config(content)[:12]}"

    def _plan(self) -> dict[str, Any]:
        names = (self.start, self.adapted)
        return {
            "config": {
                "verb": "mix",
                "hub": [name for name in names if is_hub_id(name)],
                "shares": list(self.shares),
                "task": self.task,
                **(self.training if self.dev else {}),
            },
            "inputs": [*(find_folder(name) for name in names if not is_hub_id(name)), *self.train, *self.dev],
        }

    def _mixer(self) -> Callable[[float], Checkpoint]:
        """Open both models, and check that they can be mixed at every share."""
        from alembert.files.checkpoint import open as open_checkpoint
        from alembert.files.surgery import check_mix_share, mix_checkpoints

        for share in self.shares:
            check_mix_share(share)
        start, adapted = open_checkpoint(self.start), open_checkpoint(self.adapted)
        mix_checkpoints(start, adapted, 0.0)
        if self.dev and not self.train:
            self._check_tasks()
        return lambda share: mix_checkpoints(start, adapted, share)

    def _check_tasks(self) -> None:
        from alembert.tasks.files import has_task

        for name in (self.start, self.adapted):
            if not has_task(resolve_model_folder(name)):
                raise BadSetting(
                    f"{name} is not fine-tuned, so shares cannot be evaluated as they are. Give training examples and a "
                    "task too: --train FILE --task tag."
                )

    def _choose(self, mixed: Callable[[float], Checkpoint], trials: Path, out: Path) -> MixResult:
        """Try all shares; of equals the one nearest to the start is the best."""
        main, scores = "", {}
        for share in self.shares:
            folder = trials / f"{share:g}"
            if not folder.is_dir():
                trials.mkdir(parents=True, exist_ok=True)
                self._write_trial(mixed(share), folder)
            main, scores[share] = self._try(folder)
            if self.progress:
                note(f"share {share:g}: {main} {scores[share]:.4f} on the development data")
        best = max(sorted(scores), key=lambda share: scores[share])
        return MixResult(folder=out, share=best, main=main, scores=scores)

    def _write_trial(self, checkpoint: Checkpoint, folder: Path) -> None:
        from alembert import artifact
        from alembert.files.checkpoint import CHECKPOINT_KIND

        with artifact.create(folder, CHECKPOINT_KIND, config=checkpoint.config()) as draft:
            checkpoint.write(draft)
            self._write_tasks(checkpoint, draft.path)

    def _try(self, folder: Path) -> tuple[str, float]:
        """Return the name of the main score of a mix on the development data, and its value."""
        if self.train:
            from alembert.api.training import finetune

            assert self.task is not None
            out = folder.with_name(f"{folder.name}-{self.task}")
            how: dict[str, Any] = {"device": self.device, "progress": self.progress, **self.training}
            done = finetune(self.task, model=folder, train=self.train, dev=self.dev, out=out, **how)
            return done.main, done.mean
        from alembert.api.inference import evaluate

        how = {"task": self.task, "rounds": 1, "device": self.device, "progress": self.progress}
        evaluation = cast("Evaluation", evaluate(folder, self.dev, **how))  # of one file, therefore of one task
        return evaluation.scores.main, evaluation.scores.value

    def _write(self, checkpoint: Checkpoint, draft: Draft, result: MixResult) -> None:
        from alembert.artifact import atomic_write
        from alembert.artifact.disk import to_json_bytes

        facts = {"mix": f"{result.share:g} of the adapted model, {1 - result.share:g} of the start"}
        if result.scores:
            listed = ", ".join(f"{share:g}: {score:.4f}" for share, score in result.scores.items())
            facts["shares tried"] = f"{result.main} on development data by share: {listed}"
        checkpoint.write(draft, training=facts)
        self._write_tasks(checkpoint, draft.path)
        draft.notes["mix"] = facts["mix"]
        record = {"share": result.share, "main": result.main, "scores": [*map(list, result.scores.items())]}
        (draft.path / RUN_FOLDER).mkdir(exist_ok=True)
        atomic_write(draft.path / RUN_FOLDER / SHARES_FILE, to_json_bytes(record))

    def _write_tasks(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Write the tasks of both models; thresholds are those of the adapted one, scores of confidence none's."""
        from alembert.tasks.files import TASK_FILE, read_tasks, write_tasks

        folders = [resolve_model_folder(name) for name in (self.start, self.adapted)]
        saved = {
            name: task for each in folders if (each / TASK_FILE).is_file() for name, task in read_tasks(each).items()
        }
        heads = {name: task.head or task.open().head().kind for name, task in saved.items()}
        tasks = {
            name: (
                task.open().with_head_weights(checkpoint.model.head(heads[name])),
                {key: value for key, value in task.training.items() if key != "confidence"},
            )
            for name, task in saved.items()
        }
        if tasks:
            write_tasks(folder, tasks, heads)
        for task in (each for each, _ in tasks.values() if len(tasks) == 1):
            for path, content in task.extra_files().items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)


def _read_finished(folder: Path) -> MixResult:
    from alembert.artifact.disk import read_json

    record = read_json(folder / RUN_FOLDER / SHARES_FILE)
    return MixResult(
        folder=folder,
        share=record["share"],
        main=record["main"],
        scores=dict(record["scores"]),
    )
