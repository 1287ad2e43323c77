"""The model card: `README.md` of a Checkpoint, made from what is known, the same for the same model."""

from __future__ import annotations

from alembert.files.family import Blueprint

_MEANING = {
    "masked_lm": "fills masked tokens",
    "next_sentence": "tells whether the second sentence follows the first (0: yes, 1: no)",
    "classify": "classifies texts",
    "choice": "scores one choice of several",
    "tag": "labels tokens",
    "span": "finds the start and end of an answer",
}


def model_card(blueprint: Blueprint, model_type: str) -> str:
    """Return the text of the card."""
    config = blueprint.config
    lines = [
        "---",
        "library_name: transformers" if model_type != "alembert" else "library_name: alembert",
        "---",
        f"# {config.num_hidden_layers} x {config.hidden_size} {model_type} encoder",
        "",
        "| | |",
        "|---|---|",
        f"| layers | {config.num_hidden_layers} |",
        f"| width | {config.hidden_size} |",
        f"| attention heads | {config.num_attention_heads} |",
        f"| vocabulary | {config.vocab_size:,} pieces |",
        f"| longest input | {config.max_position_embeddings} tokens |",
        *(f"| head `{name}` | {_MEANING[spec.kind]} |" for name, spec in sorted(blueprint.heads.items())),
        *(
            f"| labels of `{head}` | {', '.join(labels)} |"
            for head, labels in sorted(blueprint.labels.items())
        ),
        "",
        "Open it with `alembert.open(folder)`"
        + (
            "; transformers cannot read this form."
            if model_type == "alembert"
            else ", or with the Auto classes of Hugging Face transformers."
        ),
        "",
    ]
    return "\n".join(lines)
