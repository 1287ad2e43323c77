"""ALBERT (Lan et al. 2019): layers that share weights, and embeddings narrower than the states.

Its second pre-training head tells the order of two sentences; it has the shape of BERT's next-sentence head.
"""

from typing import Final

from alembert.files.families.bert import BERT, COPY_MODULES
from alembert.files.family import Architecture, Family

_LAYER: Final = "encoder.albert_layer_groups.{group}.albert_layers.{inner}"
_MASKED_LM: Final = {"": "predictions", "dense": "predictions.dense", "norm": "predictions.LayerNorm"}

ALBERT: Final = Family(
    model_type="albert",
    prefix="albert.",
    bare="AlbertModel",
    config_keys=(*BERT.config_keys, "embedding_size", "num_hidden_groups", "inner_group_num"),
    defaults={
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "embedding_size": 128,
        "num_hidden_groups": 1,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    dropout_key="classifier_dropout_prob",
    dropout=0.1,
    undropped=("masked_lm", "copy_lm", "span", "embed"),
    modules={
        **{ours: theirs for ours, theirs in BERT.modules.items() if ours.startswith("embeddings.")},
        "embeddings.widen": ("encoder.embedding_hidden_mapping_in",),
        "blocks.{layer}.attention.qkv": (
            f"{_LAYER}.attention.query",
            f"{_LAYER}.attention.key",
            f"{_LAYER}.attention.value",
        ),
        "blocks.{layer}.attention.out": (f"{_LAYER}.attention.dense",),
        "blocks.{layer}.attention_norm": (f"{_LAYER}.attention.LayerNorm",),
        "blocks.{layer}.inner": (f"{_LAYER}.ffn",),
        "blocks.{layer}.outer": (f"{_LAYER}.ffn_output",),
        "blocks.{layer}.output_norm": (f"{_LAYER}.full_layer_layer_norm",),
        "pooler.dense": ("pooler",),
    },
    head_modules={
        **BERT.head_modules,
        "masked_lm": _MASKED_LM,
        "copy_lm": {**_MASKED_LM, **COPY_MODULES},
        "next_sentence": {"linear": "sop_classifier.classifier"},
    },
    tied={
        "predictions.decoder.weight": "encoder.embeddings.token.weight",
        "predictions.decoder.bias": "heads.masked_lm.bias",
    },
    architectures={
        "AlbertModel": Architecture(pooler=True),
        "AlbertForPreTraining": Architecture(("masked_lm", "next_sentence"), pooler=True),
        "AlbertForMaskedLM": Architecture(("masked_lm",)),
        "AlbertForSequenceClassification": Architecture(("classify",), pooler=True),
        "AlbertForTokenClassification": Architecture(("tag",)),
        "AlbertForQuestionAnswering": Architecture(("span",)),
        "AlbertForMultipleChoice": Architecture(("choice",), pooler=True),
    },
    fixed={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "pruned_heads": {},
        "num_memory_blocks": 0,
        "gap_size": 0,
        "net_structure_type": 0,
    },
)
