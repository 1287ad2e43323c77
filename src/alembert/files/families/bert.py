"""BERT (Devlin et al. 2018), BioBERT and every checkpoint with `model_type: bert`."""

from typing import Final

from alembert.files.family import Architecture, Family

_LAYER: Final = "encoder.layer.{layer}"
_MASKED_LM: Final = {
    "": "cls.predictions",
    "dense": "cls.predictions.transform.dense",
    "norm": "cls.predictions.transform.LayerNorm",
}
COPY_MODULES: Final = {"copy": "copy", "copy.query": "copy.query", "copy.key": "copy.key", "copy.gate": "copy.gate"}

BERT: Final = Family(
    model_type="bert",
    prefix="bert.",
    bare="BertModel",
    config_keys=(
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "max_position_embeddings",
        "type_vocab_size",
        "initializer_range",
        "layer_norm_eps",
    ),
    defaults={},
    dropout_key="classifier_dropout",
    dropout=None,
    undropped=("masked_lm", "copy_lm", "next_sentence", "span", "embed"),
    modules={
        "embeddings.token": ("embeddings.word_embeddings",),
        "embeddings.position": ("embeddings.position_embeddings",),
        "embeddings.segment": ("embeddings.token_type_embeddings",),
        "embeddings.norm": ("embeddings.LayerNorm",),
        "blocks.{layer}.attention.qkv": (
            f"{_LAYER}.attention.self.query",
            f"{_LAYER}.attention.self.key",
            f"{_LAYER}.attention.self.value",
        ),
        "blocks.{layer}.attention.out": (f"{_LAYER}.attention.output.dense",),
        "blocks.{layer}.attention_norm": (f"{_LAYER}.attention.output.LayerNorm",),
        "blocks.{layer}.inner": (f"{_LAYER}.intermediate.dense",),
        "blocks.{layer}.outer": (f"{_LAYER}.output.dense",),
        "blocks.{layer}.output_norm": (f"{_LAYER}.output.LayerNorm",),
        "pooler.dense": ("pooler.dense",),
    },
    head_modules={
        "masked_lm": _MASKED_LM,
        "copy_lm": {**_MASKED_LM, **COPY_MODULES},
        "next_sentence": {"linear": "cls.seq_relationship"},
        "classify": {"linear": "classifier"},
        "tag": {"linear": "classifier"},
        "crf": {"linear": "classifier", "crf": "crf"},
        "choice": {"linear": "classifier"},
        "span": {"linear": "qa_outputs"},
        "embed": {"layer": "embed.layer"},
    },
    tied={
        "cls.predictions.decoder.weight": "encoder.embeddings.token.weight",
        "cls.predictions.decoder.bias": "heads.masked_lm.bias",
    },
    architectures={
        "BertModel": Architecture(pooler=True),
        "BertForPreTraining": Architecture(("masked_lm", "next_sentence"), pooler=True),
        "BertForMaskedLM": Architecture(("masked_lm",)),
        "BertLMHeadModel": Architecture(("masked_lm",), attention="causal"),
        "BertForNextSentencePrediction": Architecture(("next_sentence",), pooler=True),
        "BertForSequenceClassification": Architecture(("classify",), pooler=True),
        "BertForTokenClassification": Architecture(("tag",)),
        "BertForQuestionAnswering": Architecture(("span",)),
        "BertForMultipleChoice": Architecture(("choice",), pooler=True),
    },
    fixed={
        "position_embedding_type": "absolute",
        "add_cross_attention": False,
        "is_encoder_decoder": False,
        "pruned_heads": {},
    },
)
