"""The model card: `README.md` of a Checkpoint, made from what is known, the same for the same model and training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from alembert.files.family import Blueprint

_MEANING = {
    "masked_lm": "fills masked tokens",
    "next_sentence": "tells whether the second sentence follows the first (0: yes, 1: no)",
    "classify": "classifies texts",
    "choice": "scores one choice of several",
    "tag": "labels tokens",
    "boundary": "tells for each token whether an entity begins or ends there",
    "span": "finds the start and end of an answer",
}


def model_card(blueprint: Blueprint, model_type: str, training: Mapping[str, str] | None = None) -> str:
    """Return the text of the card; `training` is what a reader should know of the run, in the order to tell it."""
    config = blueprint.config
    opening = (
        "; transformers cannot read this form."
        if model_type == "alembert"
        else ", or with the Auto classes of Hugging Face transformers."
    )
    lines = [
        "---",
        "library_name: transformers" if model_type != "alembert" else "library_name: alembert",
        "---",
        f"# {config.num_hidden_layers} x {config.hidden_size} {model_type} encoder",
        "",
        *_table(_model(blueprint)),
        "",
        *(("## Training", "", *_table(training.items()), "") if training else ()),
        f"Open it with `alembert.open(folder)`{opening}",
        "",
    ]
    return "\n".join(lines)


def _model(blueprint: Blueprint) -> Iterator[tuple[str, str]]:
    config = blueprint.config
    yield "layers", str(config.num_hidden_layers)
    yield "width", str(config.hidden_size)
    yield "attention heads", str(config.num_attention_heads)
    yield "vocabulary", f"{config.vocab_size:,} pieces"
    yield "longest input", f"{config.max_position_embeddings} tokens"
    for name, spec in sorted(blueprint.heads.items()):
        yield f"head `{name}`", _MEANING[spec.kind]
    for head, labels in sorted(blueprint.labels.items()):
        yield f"labels of `{head}`", ", ".join(labels)


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for name, value in rows:
        yield f"| {_cell(name)} | {_cell(value)} |"


def _cell(text: str) -> str:
    r"""Keep a text inside its cell.

    >>> _cell("a|b\nc")
    'a\\|b c'
    """
    return " ".join(text.split()).replace("|", r"\|")
