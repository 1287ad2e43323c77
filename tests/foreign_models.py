"""Models as transformers saves them: tiny ones with random weights, one for each kind of head."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers

WORDS = ["of", "the", "and", "in", "to", "disease", "cancer", "gene", "breast", "mutation", "protein", "cell"]
PIECES = [
    *"abcdefghijklmnopqrstuvwxyz0123456789",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"),
]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, *WORDS, *".,;:()-/%+='"]
SHAPE = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 512,
}
BIO = {0: "B-Disease", 1: "O", 2: "I-Disease", 3: "B-Gene", 4: "I-Gene"}
SENTIMENT = {0: "negative", 1: "neutral", 2: "positive"}


def save_foreign(folder: Path, architecture: str, *, labels: dict[int, str] | None = None, **config: Any) -> Any:
    """Save a random model of an architecture with its tokenizer, as a user of transformers does; give the model."""
    torch.manual_seed(7)
    family = "Albert" if architecture.startswith("Albert") else "Bert"
    named = {} if labels is None else {"id2label": labels, "label2id": {n: i for i, n in labels.items()}}
    own = {"embedding_size": 12} if family == "Albert" else {}
    settings = getattr(transformers, f"{family}Config")(**SHAPE, **own, **named, **config)
    model = getattr(transformers, architecture)(settings).eval()
    _draw(model)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model


def _draw(model: torch.nn.Module) -> None:
    """Draw weights that say different things of different words; those of a new model say the same of all."""
    for name, parameter in model.named_parameters():
        if "LayerNorm" not in name and "layer_norm" not in name:
            torch.nn.init.normal_(parameter, std=0.6 if parameter.dim() > 1 else 0.01)


def save_tokenizer(folder: Path) -> None:
    """Save a WordPiece tokenizer of letters and a few words."""
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf8")
    table = {"do_lower_case": True, "model_max_length": 512, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(table), encoding="utf8")


def real_sentences(shared: Path, count: int) -> list[str]:
    """Give sentences of NCBI-disease, words joined by spaces."""
    blocks = (shared / "ner/NCBI-disease/train.tsv").read_text(encoding="utf8").strip().split("\n\n")
    sentences = [" ".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks]
    assert len(sentences) >= count
    return sentences[:count]
