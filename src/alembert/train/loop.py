"""The one training loop.

In: a model, an objective and settings. One step: plan micro-batches, compute their gradients, sum them over streams and
processes, clip, update, average, log, save. Nothing random has a state: data and dropout are found by seed, cursor and
step, so a saved run continues to the bit, and any number of processes sees the same samples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from alembert import hardware
from alembert.data.order import stable_hash
from alembert.nn.dropout import DropoutSeed
from alembert.nn.model import Model
from alembert.train.distributed import Processes, SilentExit, is_sharded, shard_model, shard_tensors
from alembert.train.gradients import (
    ExponentialMovingAverage,
    StartMix,
    accumulate,
    accumulate_sequentially,
    autocast,
    choose_half_precision,
)
from alembert.train.objective import EvalResult, MicroBatch, Objective
from alembert.train.optim import Optimiser
from alembert.train.parts import add_first_loss, choose_parts, get_learning_rate, is_first_step_over
from alembert.train.progress import (
    Budget,
    Meter,
    RunTotals,
    StepTotals,
    TrainerState,
    check_skipped,
    check_trained,
    count_micro_batch_flops,
    count_targets,
    sum_by_name,
)
from alembert.train.run import StopSignalHandler, TrainingInterrupted
from alembert.train.runlog import RunLog, TrainingProgress
from alembert.train.settings import RunSettings
from alembert.train.state import RunStates, Snapshot


class TrainingLoop:
    """A run: `run` goes from where it is to the end of the budget."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        settings: RunSettings,
        *,
        states: RunStates,
        log: RunLog,
        processes: Processes | None = None,
        device: str = "cpu",
        sharded: bool = False,
        on_progress: Callable[[TrainingProgress], None] = lambda _: None,
    ) -> None:
        hardware.configure_torch()
        self.processes = processes or Processes()
        self.device = self.processes.device(device)
        if sharded and self.processes.world > 1:
            shard_model(model, self.device, self.processes.world, settings.optimiser)
        self.model = model.to(self.device).train()
        self.model.encoder.recompute = settings.model.recompute
        self.objective = objective
        self.settings = settings
        self.states = states
        self.log = log
        self.on_progress = on_progress
        self.optimiser = Optimiser(model, settings.optimiser)
        decay = settings.saving.ema_decay
        self.average = None if decay is None else ExponentialMovingAverage(model, decay)
        self.start_mix = StartMix(model, settings.saving.towards_start)
        self.position = TrainerState()
        self.streams = torch.get_num_threads() if device == "cpu" else 1
        self.half = choose_half_precision(settings.model.precision, device)
        self.peak: float | None = None
        self.kept = 0
        """The step whose weights a finished run keeps."""
        self._saved_at = 0.0
        self._steps_begin = RunTotals()
        choose_parts(model, settings.model, 0.0, alone=self._is_first_step)  # refuses parts that are not there at once

    # -- the run

    def run(self) -> EvalResult:
        """Train to the end of the budget; return what held-out data say about the result."""
        self._restore()
        with StopSignalHandler() as stopping:
            self._begin()
            self._steps_begin = self.position.done
            while not self._is_over():
                self._free_parts_if_due()
                self._step()
                self._evaluate_if_due()
                self._save_if_due()
                if signal := max(self.processes.gather(stopping.requested or 0)):
                    self._save()
                    stopped = TrainingInterrupted(signal)
                    raise stopped if self.processes.is_first else SilentExit(stopped.exit_code)
            check_trained(self.position.done)
            return self._finish()

    def _begin(self) -> None:
        if self.position.evaluations:
            return
        if self.settings.evaluation.at_start:
            self._evaluate()
        else:
            self.position.evaluations = 1

    def _is_over(self) -> bool:
        patience = self.settings.evaluation.patience
        settled = patience is not None and self.position.since_best >= patience
        return settled or self.budget.is_over(self.position.done)

    @property
    def budget(self) -> Budget:
        p, s = self.position, self.settings
        return Budget(hours=s.hours, tokens=s.tokens, steps=s.steps, reserve=p.reserve, overhead=p.overhead)

    def _step(self) -> None:
        began = time.monotonic()
        position, settings = self.position, self.settings
        progress = self.budget.progress(position.done)
        choose_parts(self.model, settings.model, progress, alone=self._is_first_step)
        portions, cursor = self.objective.sample(position.cursor, settings.batch.micro_batches, progress)
        totals = self._gradients(portions)
        self.processes.sum_gradients(self.model.parameters())
        rate = get_learning_rate(progress, self._freed_at, settings)
        norm = self.optimiser.step(position.done.step, rate)
        is_sound = math.isfinite(norm)
        if is_sound and self.average is not None:
            self.average.update()
        seconds = self.processes.broadcast(time.monotonic() - began)
        position.cursor = cursor
        position.done = RunTotals(
            step=position.done.step + 1,
            tokens=position.done.tokens + totals.tokens,
            seconds=position.done.seconds + seconds,
        )
        position.skipped = 0 if is_sound else position.skipped + 1
        if is_sound:
            self._note(totals, seconds, rate, norm)
        else:
            self._note_skipped()

    def _gradients(self, portions: Sequence[Any]) -> StepTotals:
        """Compute this process's share of the step's gradients; return the totals of all processes."""
        own = [(n, p) for n, p in enumerate(portions) if n % self.processes.world == self.processes.rank]
        micros = [(n, self.objective.collate(portion).to(self.device)) for n, portion in own]
        totals = self.processes.total(count_targets(micro for _, micro in micros))
        sums: list[dict[str, float]] = [{} for _ in micros]
        jobs = [partial(self._loss, n, micro, totals, own) for (n, micro), own in zip(micros, sums, strict=True)]
        self._accumulate(jobs, portions, totals)
        work: float = sum(count_micro_batch_flops(self.model.config, micro) for _, micro in micros)
        losses = self.processes.total({**sum_by_name(sums), "/work": work})
        work = losses.pop("/work")
        return StepTotals(losses, totals, sum(portion.tokens for portion in portions), work)

    def _accumulate(
        self, jobs: Sequence[Callable[[], Tensor]], portions: Sequence[Any], totals: Mapping[str, float]
    ) -> None:
        if not is_sharded(self.model):
            accumulate(jobs, list(self.model.parameters()), self.streams)
            return
        idle = -(-len(portions) // self.processes.world) > len(jobs)
        if idle:  # no process can run a pass alone: one that counts nothing keeps the others company
            micro = self.objective.collate(portions[0]).to(self.device)
            jobs = [*jobs, lambda: 0 * self._loss(0, micro, totals, {})]
        accumulate_sequentially(jobs)

    def _loss(self, number: int, micro: MicroBatch, totals: Mapping[str, float], sums: dict[str, float]) -> Tensor:
        noise = DropoutSeed(stable_hash(self.settings.seed, "dropout", self.position.done.step, number))
        with autocast(self.device, self.half):
            loss, own_sums = self.objective.loss(self.model, micro, totals, noise)
        sums.update(own_sums)
        return loss

    # -- parts that are trained alone at first

    @property
    def _is_first_step(self) -> bool:
        return bool(self.settings.model.first) and self.position.freed is None

    @property
    def _freed_at(self) -> float | None:
        """The progress at which all parts were freed; none: they are not yet."""
        return None if self._is_first_step else self.budget.progress(self.position.freed or RunTotals())

    def _free_parts_if_due(self) -> None:
        """Begin to train all parts; before that, see on held-out data what the first ones have learnt by themselves."""
        position, settings = self.position, self.settings
        progress = self.budget.progress(position.done)
        if not self._is_first_step or not is_first_step_over(progress, position.first_losses, settings.model):
            return
        if position.judged != position.done.step:
            self._evaluate()
        position.freed, position.first_losses = position.done, []
        position.plateaued = progress < settings.model.first_share
        if settings.schedule.restart:
            self.optimiser.reset()

    # -- what people see

    @property
    def meter(self) -> Meter:
        peak = None if self.peak is None else self.peak * self.processes.world
        return Meter(self.position.sums, peak)

    def _note(self, totals: StepTotals, seconds: float, rate: float, norm: float) -> None:
        self.meter.add(totals, seconds)
        if self._is_first_step:
            steps = self.settings.model.first_plateau_steps
            add_first_loss(self.position.first_losses, totals.loss, steps)
        self._on_progress(totals.loss)
        if self.position.done.step % self.settings.saving.log_every == 0:
            self._write_row(rate, norm)
            self.position.sums.clear()

    def _note_skipped(self) -> None:
        """Log a step that was lost; when only such steps come, refuse to go on."""
        step = self.position.done.step
        self._log("event", what="skipped step", note="The gradients were not finite.", step=step)
        check_skipped(step, self.position.skipped)

    def _write_row(self, rate: float, norm: float) -> None:
        meter, losses = self.meter, self.meter.losses()
        self._log(
            "step",
            **asdict(self.position.done),
            rate=rate,
            norm=norm,
            loss=sum(losses.values()),
            losses=losses,
            tokens_per_second=meter.tokens_per_second,
            peak_share=meter.peak_share,
        )

    def _on_progress(self, loss: float) -> None:
        done, meter = self.position.done, self.meter
        self.on_progress(
            TrainingProgress(
                share=self.budget.progress(done),
                step=done.step,
                loss=loss,
                tokens_per_second=meter.tokens_per_second,
                peak_share=meter.peak_share,
                seconds_left=self.budget.seconds_left(done, self._steps_begin),
            )
        )

    def _log(self, kind: str, **values: Any) -> None:
        if self.processes.is_first:
            self.log.write(kind, **values)

    # -- held-out data

    def _evaluate_if_due(self) -> None:
        times = self.settings.evaluation.times
        due = int(self.budget.progress(self.position.done) * times)
        if due >= self.position.evaluations and not self.budget.is_over(self.position.done):
            self._evaluate()

    def _evaluate(self) -> EvalResult:
        """Judge the model, and save the state if it is the best so far."""
        began = time.monotonic()
        self._measure_peak()
        verdict = self._verdict()
        position, done = self.position, self.position.done
        if position.judged != done.step:  # a run killed after its last look comes here again
            self._log("held_out", **asdict(done), scores=verdict.scores)
        position.judged = done.step
        position.longest_evaluation = max(position.longest_evaluation, self._spend(began))
        self._plan_evaluation(done)  # before the save: a run that goes on from this state needs the plan
        best = math.inf if position.best is None else position.best
        position.since_best = 0 if verdict.loss < best else position.since_best + 1
        if math.isfinite(verdict.loss) and verdict.loss <= best:  # of equals the one that has learnt longer
            position.best = verdict.loss
            self._save(best=True)
            self._plan_evaluation(done)
        return verdict

    def _plan_evaluation(self, last: RunTotals) -> None:
        """Choose the next evaluation; the last one began at `last` and has just ended."""
        position, times = self.position, self.settings.evaluation.times
        spent = position.done.seconds - last.seconds
        position.evaluations = self.budget.next_evaluation(position.done, spent, times)

    def _measure_peak(self) -> None:
        """Look again at what the machine can do: on a shared one, a single look may come at a bad moment."""
        if self.device.type == "cpu":
            self.peak = max(self.peak or 0.0, hardware.measure_matmul_peak(self.half or "float32"))

    def _spend(self, began: float) -> float:
        """Count the time since `began`, by the clock of the first process, as time of the run without a step."""
        spent: float = self.processes.broadcast(time.monotonic() - began)
        done = self.position.done
        self.position.done = replace(done, seconds=done.seconds + spent)
        self.position.overhead += spent
        return spent

    def _verdict(self) -> EvalResult:
        self.model.eval()
        averaged = self.average.applied() if self.average else nullcontext()
        with averaged, self.start_mix.applied(), autocast(self.device, self.half):
            if is_sharded(self.model):  # all processes run all passes
                parts = [self.objective.evaluate(self.model)]
            else:
                part = self.objective.evaluate(self.model, self.processes.rank, self.processes.world)
                parts = self.processes.gather(part)
        self.model.train()
        return self.objective.summarise(parts)

    # -- nothing lost

    def _save_if_due(self) -> None:
        saving, done = self.settings.saving, self.position.done
        if saving.steps is not None:
            due = done.step % saving.steps == 0
        else:
            due = done.seconds - self._saved_at >= saving.minutes * 60
        if due:
            self._save()

    def _save(self, *, best: bool = False) -> None:
        began = time.monotonic()
        tensors = {"model": self.model.state_dict(), "optimiser": self.optimiser.state()}
        if self.average is not None:
            tensors["average"] = self.average.state()
        whole = {group: self.processes.gather_tensors(named) for group, named in tensors.items()}
        self.processes.on_first(lambda: self._write_state(whole, best))
        self.position.longest_save = max(self.position.longest_save, self._spend(began))
        self._saved_at = self.position.done.seconds

    def _write_state(self, tensors: dict[str, dict[str, Tensor]], best: bool) -> None:
        self.log.sync()
        facts = {**self.position.as_facts(), "log": self.log.position}
        self.states.save(Snapshot(self.position.done.step, facts, tensors), best=best)

    def _restore(self) -> None:
        latest = self.processes.agree(self.states.latest)
        step = None if latest is None else latest[0].step
        self.processes.agree(lambda: self.processes.check_same(step))
        if latest is None:
            return
        snapshot, notes = latest
        self.optimiser.load(self._load_weights(snapshot)["optimiser"])
        self.position = TrainerState.of_facts(snapshot.facts)
        self._saved_at = self.position.done.seconds
        if self.processes.is_first:
            self.log.rewind(snapshot.facts["log"])
            for note in notes:
                self.log.write("event", what="damaged state", note=note, step=snapshot.step)

    def _finish(self) -> EvalResult:
        verdict = self._evaluate()
        self.kept = self.position.done.step
        if self.settings.saving.keep == "best":
            self._take_best()
        if self.average is not None:
            self.average.install()
        self.start_mix.install()
        self.model = self.processes.whole_model(self.model).eval()
        return verdict

    def _take_best(self) -> None:
        """Go back to the weights that did best on held-out data."""
        snapshot = self.processes.agree(self.states.best)
        if snapshot is None or snapshot.step == self.position.done.step:
            return
        self.kept = snapshot.step
        self._load_weights(snapshot)

    def _load_weights(self, snapshot: Snapshot) -> dict[str, dict[str, Tensor]]:
        tensors = {group: shard_tensors(named, self.model) for group, named in snapshot.tensors.items()}
        self.model.load_state_dict(tensors["model"])
        if self.average is not None:
            self.average.load(tensors["average"])
        return tensors
