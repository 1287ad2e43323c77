"""The opened models behind `alembert.load`: texts, records or documents in, predictions out.

In: folders of models, which are Checkpoints or Exports. Taggers, classifiers of single texts and relation models
work together on documents; a model for another task works alone; a model without a task is a language model or an
encoder. Out: a prediction for each input, in order (`infer.predictions`). A `Predictor` may be used from several
threads. It does not survive `fork`, since the threads of the runtime libraries do not, and says so instead of waiting
for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import Document
from alembert.data.batching import map_in_threads
from alembert.errors import BadFile, BadInput, BadSetting, UserError
from alembert.infer.annotate_pipeline import Pipeline, PipelineOutput, annotates_documents
from alembert.infer.attention import AttentionMaps, read_attention
from alembert.infer.embedder import Embedder
from alembert.infer.engines import choose_device, open_engine, open_torch_engine
from alembert.infer.explain.explain import choose_model_task, explain_decision
from alembert.infer.explain.result import Explanation
from alembert.infer.index import VectorIndex
from alembert.infer.neighbours import Neighbourhood, find_neighbours, read_sentences, read_terms
from alembert.infer.predictions import AnnotatedDocument, FailedPrediction, Prediction, SearchHit
from alembert.infer.predictor_io import (
    PredictorInput,
    batch_inputs,
    input_id,
    is_pair,
    is_single,
    similarity_texts,
    to_document,
    to_example,
    to_list,
    to_prediction,
    to_read_example,
    to_similarity,
)
from alembert.infer.search import SimilarityMeasure, find_nearest
from alembert.infer.task_model import PARALLEL_BATCHES, TaskModel
from alembert.tasks.compare.scores import normalise_vectors
from alembert.tasks.files import SavedTask, choose_task, read_tasks

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine

BATCH_CHARACTERS: Final = 200_000
"""Text that `pipe` computes together, as `annotate` does: enough to sort by length, little enough to hold."""


class Predictor:
    """One model or several, ready to predict; made by `alembert.load`.

    `tasks` are the names of the tasks, in the order of the models (empty for a model that was not fine-tuned),
    `folders` the folders that were opened.
    """

    def __init__(
        self,
        *folders: Path,
        task: str | None = None,
        device: str = "auto",
        pooling: str | None = None,
        lexicons: Mapping[str, Path] | None = None,
    ) -> None:
        """Open folders of models; `task` chooses one task of a multi-task model, `pooling` is for `encode`.

        `lexicons` adds terms, in files by label, to those that taggers read.
        """
        if not folders:
            raise BadSetting("No model was given. Name at least one folder: alembert.load('work/ner').")
        self.folders = folders
        self._device = choose_device(self.folders, device)
        self._pooling = pooling
        self._process = os.getpid()
        saved = _read_saved(self.folders, task)
        self.tasks = tuple(each.kind for tasks in saved for each in tasks)
        """Names of the tasks, in the order of the folders; empty for a model that was not fine-tuned."""
        self._models = _with_lexicons(_open_models(saved, self.tasks, self._device), lexicons or {})

    def __repr__(self) -> str:
        tasks = f", tasks: {', '.join(self.tasks)}" if self.tasks else ""
        return f"Predictor({', '.join(map(str, self.folders))}{tasks})"

    # -- predictions

    def predict(
        self,
        inputs: PredictorInput | Sequence[PredictorInput],
        *,
        min_score: float | None = None,
        min_precision: float | None = None,
    ) -> Any:
        """Predict one input, or a list of them.

        An input is a text, a `Document`, or a dict: `{"text": ...}`, `{"question": ..., "passage": ...}`, `{"question":
        ..., "choices": [...]}`; for pairs of texts a tuple of two. One input gives one prediction, a list gives a list.
        Answers whose score is below `min_score`, or below the threshold that reached `min_precision` on the development
        data, are left out and counted in `coverage.withheld`.
        """
        self._check_process()
        compute = self._computation(min_score, min_precision)
        single = is_single(inputs)
        listed = [cast(PredictorInput, inputs)] if single else to_list(inputs)
        predictions = compute(list(enumerate(listed, start=1)))
        for prediction in predictions:
            if isinstance(prediction, Exception):
                raise prediction
        return predictions[0] if single else predictions

    def pipe(
        self,
        inputs: Iterable[PredictorInput],
        *,
        min_score: float | None = None,
        min_precision: float | None = None,
        batch_characters: int = BATCH_CHARACTERS,
    ) -> Iterator[Any]:
        """Predict inputs as a stream, in their order; while some are computed, the next are read.

        Inputs are computed in batches of about `batch_characters`. One that cannot be predicted does not end the
        stream: its prediction has the reason in `problem`.
        """
        self._check_process()
        if isinstance(inputs, str | bytes | Mapping | Document) or not isinstance(inputs, Iterable):
            raise BadInput(
                f"`pipe` was given a {type(inputs).__name__}; expected an iterable of inputs, such as a list of texts. "
                "Use `predict` for a single input."
            )
        if not isinstance(batch_characters, int) or batch_characters < 1:
            raise BadSetting(f"`batch_characters` is {batch_characters!r}; expected a whole number of 1 or more.")
        compute = self._computation(min_score, min_precision)
        return self._stream(compute, batch_inputs(inputs, batch_characters))

    def _stream(self, compute: Any, batches: Iterator[list[tuple[int, PredictorInput]]]) -> Iterator[Any]:
        for batch, predictions in map_in_threads(
            lambda batch: (batch, compute(batch)), batches, PARALLEL_BATCHES, ahead=1
        ):
            for (number, item), prediction in zip(batch, predictions, strict=True):
                failed = isinstance(prediction, Exception)
                yield self._failed(number, item, prediction) if failed else prediction

    def _computation(self, min_score: float | None, min_precision: float | None) -> Any:
        """Return the function that predicts numbered inputs; inputs that cannot be used give exceptions."""
        if not self.tasks:
            raise BadSetting(
                f"{self.folders[0]} was not fine-tuned for a task, so it has nothing to predict. Fine-tune it "
                "(alembert.finetune), or use it as a language model: fill, generate, score."
            )
        if self._embeds:
            if (min_score, min_precision) != (None, None):
                raise BadSetting("Similarities have no confidence to withhold them by. Leave the least score out.")
            return self._similarities
        models = [model.with_threshold(min_score, min_precision) for model in self._models]
        if not self._annotates or self.tasks == ("relate",):  # alone it reads marked texts as well
            return partial(_predict_batch, models[0])
        annotate = partial(_annotate_batch, Pipeline.from_models(models))
        if self.tasks == ("classify",):
            # One that was fine-tuned elsewhere does not say whether it reads pairs.
            return partial(_classify_batch, annotate, partial(_predict_batch, models[0]))
        return annotate

    def _failed(self, number: int, item: PredictorInput, error: Exception) -> Any:
        name = input_id(item, number)
        if not self._annotates:
            return FailedPrediction(id=name, problem=str(error))
        text: Any = item.text if isinstance(item, Document) else item
        text = text.get("text") if isinstance(text, Mapping) else text
        return AnnotatedDocument(name, text if isinstance(text, str) else "", problem=str(error))

    # -- explanations

    def explain(
        self,
        input: PredictorInput,  # noqa: A002
        *,
        span: tuple[int, int] | None = None,
        label: str | None = None,
        method: Literal["gradients", "occlusion"] | None = None,
        task: str | None = None,
    ) -> Explanation:
        """Explain an answer for one input: which words made it, and how faithful that picture is.

        `span` are the characters of an entity and `label` its type, or the label of a text; without either it is the
        answer that the model is least sure of. `method` is `gradients` (by default, for Checkpoints) or `occlusion`.
        """
        self._check_process()
        if not self._models:
            raise BadSetting(f"{self.folders[0]} was not fine-tuned for decisions, so there are none to explain.")
        model, part = choose_model_task(self._models, task)
        example = to_read_example(part.task, input, 1)
        return explain_decision(part, model.engine, example, span=span, label=label, method=method)

    # -- vectors

    def encode(self, texts: str | Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one vector for each text, an array of shape (texts, width); a single text gives one vector."""
        self._check_process()
        listed = [texts] if isinstance(texts, str) else to_list(texts)
        for number, text in enumerate(listed, start=1):
            if not isinstance(text, str):
                raise BadInput(f"Input {number} of `encode` is a {type(text).__name__}; expected a text (str).")
        vectors_ND = self._embedder.embed(listed).vectors_ND
        return vectors_ND[0] if isinstance(texts, str) else vectors_ND

    def similarity(self, first: str | Sequence[str], second: str | Sequence[str]) -> Any:
        """Return cosine similarities: a number for two texts, an array (first, second) for lists of texts."""
        one, other = (normalise_vectors(np.atleast_2d(self.encode(texts))) for texts in (first, second))
        similarities = (one @ other.T).astype(np.float32)
        if isinstance(first, str) and isinstance(second, str):
            return float(similarities[0, 0])
        return similarities[0] if isinstance(first, str) else similarities

    def search(
        self, index: str | Path, query: str | Sequence[str], *, top: int = 10, measure: SimilarityMeasure = "cosine"
    ) -> Any:
        """Return the texts nearest to a query, as `SearchHit`s, the best first; `index` is a folder that `alembert.embed` wrote.

        A list of queries gives a list of lists.
        """
        opened = VectorIndex.open(index)
        if opened.facts.fingerprint != self._embedder.origin.fingerprint:
            raise BadSetting(
                f"The vectors in {index} were made by another model ({opened.facts.model}), so nothing near could be found. "
                f"Load that model, or make vectors with {self.folders[0]}: alembert.embed."
            )
        vectors = np.atleast_2d(self.encode(query))
        found = [
            [SearchHit.of(hit, opened.read_unit(hit.row)) for hit in hits]
            for hits in find_nearest(opened, vectors, top, measure=measure)
        ]
        return found[0] if isinstance(query, str) else found

    @cached_property
    def _embedder(self) -> Embedder:
        if len(self.folders) > 1:
            raise BadSetting("Several models are loaded, and vectors come from one. Load that one alone.")
        return Embedder.open(self.folders[0], mode=cast(Any, self._pooling), device=self._device)

    @property
    def _embeds(self) -> bool:
        return self.tasks == ("compare",)

    def _similarities(self, batch: Sequence[tuple[int, PredictorInput]]) -> list[Any]:
        return [_call_or_error(self._similarity, number, item) for number, item in batch]

    def _similarity(self, number: int, item: PredictorInput) -> Prediction:
        texts = similarity_texts(item, number)
        return to_similarity(input_id(item, number), texts, self._embedder.embed(texts))

    # -- a look inside

    def attention(self, item: PredictorInput, *, window: int = 1) -> AttentionMaps:
        """Return which tokens the model looks at when it reads an input as `predict` does, in every layer and head.

        An input is a text, a tuple of two texts, or what the task reads. Of one that the model reads in several windows
        (`.windows`), `window` chooses one.
        """
        self._check_process()
        if len(self.folders) > 1:
            raise BadSetting("Several models are loaded, and attention is that of one. Load that one alone.")
        return read_attention(self._models[0] if self._models else self.language_model, item, window)

    def neighbours(
        self, word: str, *, lexicon: str | Path | None = None, texts: Sequence[str | Path] = (), top: int = 10
    ) -> Neighbourhood:
        """Return the nearest tokens of a word, and the nearest terms of a lexicon and sentences of files, if there are any."""
        self._check_process()
        given = [] if lexicon is None else read_terms(lexicon), read_sentences(texts)[0] if texts else []
        return find_neighbours(self.folders[0], word, terms=given[0], sentences=given[1], top=top, device=self._device)

    # -- language models

    @cached_property
    def language_model(self) -> TorchEngine:
        """The engine that fills masks, writes and scores texts; it runs in torch."""
        return open_torch_engine(self.folders[0], self._device)

    # -- what is loaded

    @property
    def _annotates(self) -> bool:
        return all(annotates_documents(model) for model in self._models)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise BadSetting(
                "The model was loaded before this process was forked, and its threads do not survive that. Load it in the "
                "child process, or start processes with the method 'spawn'."
            )


def _read_saved(folders: Sequence[Path], task: str | None) -> list[list[SavedTask]]:
    """Read the tasks of each folder; none for a single model that was not fine-tuned."""
    if task is not None and len(folders) > 1:
        raise BadSetting("A task was named, and several models were given. Name a task for one model alone.")
    try:
        tasks = [read_tasks(folder) for folder in folders]
    except BadFile:
        if len(folders) > 1 or not (folders[0] / "config.json").is_file():
            raise
        return []
    if task is not None:
        return [[choose_task(folder, saved, task)] for folder, saved in zip(folders, tasks, strict=True)]
    return [list(saved.values()) for saved in tasks]


def _open_models(saved: Sequence[Sequence[SavedTask]], kinds: Sequence[str], device: str) -> list[TaskModel]:
    if not kinds or tuple(kinds) == ("compare",):
        return []
    models = [TaskModel.from_engine(open_engine(tasks[0].folder, device), *tasks) for tasks in saved]
    if all(annotates_documents(model) for model in models):
        Pipeline.from_models(models)  # refuses models that do not fit each other
    elif len(kinds) > 1:
        raise BadSetting(
            f"The models are for the tasks {', '.join(kinds)}; only taggers, classifiers of single texts and relation "
            "models work together. Load one model, or one of its tasks: alembert.load(folder, task='NAME')."
        )
    return models


def _with_lexicons(models: list[TaskModel], lexicons: Mapping[str, Path]) -> list[TaskModel]:
    known = frozenset().union(*(model.lexicon_labels for model in models))
    if unknown := sorted(lexicons.keys() - known):
        there = ", ".join(sorted(known)) or "none"
        raise BadSetting(
            f"No model was trained with a lexicon {unknown[0]!r}; lexicons that the models read: {there}. Fine-tune with the "
            "lexicon, or mark its terms with alembert.annotate(..., lexicons=...)."
        )
    return [
        model.with_lexicons([f"{label}={path}" for label, path in lexicons.items() if label in model.lexicon_labels])
        for model in models
    ]


def _annotate_batch(pipeline: Pipeline, batch: Sequence[tuple[int, PredictorInput]]) -> list[Any]:
    made = [_call_or_error(to_document, item, number) for number, item in batch]
    documents = [each for each in made if isinstance(each, Document)]
    found = iter(pipeline.annotate_each(documents))
    return [each if isinstance(each, Exception) else _to_annotated_document(next(found)) for each in made]


def _classify_batch(annotate: Any, answer: Any, batch: Sequence[tuple[int, PredictorInput]]) -> list[Any]:
    """Classify pairs as pairs and everything else as documents; a model that cannot read one of them says so."""
    pairs = [each for each in batch if is_pair(each[1])]
    if not pairs:
        return cast(list[Any], annotate(batch))
    documents = iter(annotate([each for each in batch if not is_pair(each[1])]))
    answers = iter(answer(pairs))
    return [next(answers) if is_pair(item) else next(documents) for _, item in batch]


def _to_annotated_document(annotated: PipelineOutput | str) -> AnnotatedDocument | BadInput:
    if isinstance(annotated, str):
        return BadInput(f"A document could not be annotated: {annotated}.")
    document = annotated.document
    return AnnotatedDocument(
        **{name: getattr(document, name) for name in Document.__dataclass_fields__},
        probabilities=annotated.probabilities,
        value=annotated.value,
        coverage=annotated.coverage,
    )


def _predict_batch(model: TaskModel, batch: Sequence[tuple[int, PredictorInput]]) -> list[Any]:
    made = [_call_or_error(partial(to_example, model.task), item, number) for number, item in batch]
    examples = [each for each in made if not isinstance(each, Exception)]
    found = iter(zip(examples, model.predict(examples), strict=True))
    return [each if isinstance(each, Exception) else to_prediction(model.task, *next(found)) for each in made]


def _call_or_error(make: Any, *arguments: Any) -> Any:
    """Return what `make` makes, or the error that says why it cannot."""
    try:
        return make(*arguments)
    except UserError as problem:
        return problem
