"""Model families as tables: configuration keys, weight names, heads of published architectures.

`Family` reads a foreign `config.json` into a `Blueprint` (what the model is) and maps our weight names to theirs; the
same table serves both directions. A new family is a new table; only new mathematics needs a new class (in `nn/`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from alembert.errors import BadFile, BadSetting
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HEAD_KINDS, HeadSpec

Names = tuple[str, ...]
EXTENDED_HEADS: Final = {"crf": ("tag", "crf.transitions"), "copy_lm": ("masked_lm", "copy.query.weight")}
"""Kind of head -> the published kind that it is stored as, and the added weight that tells them apart.

Programs that know the published kind alone open the model as that and leave the added weights out."""
EMBED_HEAD: Final = "embed"
"""Kind of head that the bare architectures carry: programs that know them find the encoder's states, and no more."""
EMBED_POOLING_KEY: Final = "embed_pooling"
"""Key of `config.json` for what the vector of such a head is: its weights do not tell it."""
_PROBLEM_TYPES: Final = {"multi": "multi_label_classification", "number": "regression"}
"""What outputs of `classify` say -> how `problem_type` of config.json has it; a single label needs no word."""
EXTRA_KEY: Final = "extra"
"""Key of our own form for the keys of others; a published family keeps them beside its own."""
_ACTIVATION_ALIASES: Final = {"gelu_pytorch_tanh": "gelu_new", "gelu_python": "gelu"}
"""Other names for mathematics that we have."""


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """All that is needed to build a model, without its weights."""

    config: EncoderConfig
    heads: Mapping[str, HeadSpec] = field(default_factory=dict)
    pooler: bool = False
    labels: Mapping[str, Names] = field(default_factory=dict)
    """Head -> names of its outputs; LABEL_0, LABEL_1, ... where none are given."""

    def __post_init__(self) -> None:
        needed = self.pooler or any(spec.needs_pooler for spec in self.heads.values())
        object.__setattr__(self, "pooler", needed)
        labelled = {name: spec.columns for name, spec in self.heads.items() if spec.is_labelled}
        if strange := self.labels.keys() - labelled.keys():
            raise BadSetting(f"There are labels for {', '.join(sorted(strange))}, which is no head that has labels.")
        labels = {name: self.labels.get(name) or _default_labels(count) for name, count in labelled.items()}
        for name, count in labelled.items():
            if len(labels[name]) != count or len(set(labels[name])) != count:
                raise BadSetting(
                    f"The head `{name}` has {count} outputs and {len(labels[name])} labels, of which "
                    f"{len(set(labels[name]))} differ. Give each output a label of its own."
                )
        object.__setattr__(self, "labels", labels)


def _default_labels(count: int) -> Names:
    return tuple(f"LABEL_{i}" for i in range(count))


class CheckpointFormat(Protocol):
    """What opening and saving needs to know of a family."""

    @property
    def model_type(self) -> str:
        """What `config.json` calls it."""

    @property
    def tied(self) -> Mapping[str, str]:
        """Stored copies of tied weights -> our weight that they must equal."""

    def read_config(self, raw: Mapping[str, Any], stored: Collection[str], architecture: str | None) -> Blueprint:
        """Turn a `config.json` and the canonical names of the stored weights into a blueprint."""

    def write_config(self, blueprint: Blueprint) -> dict[str, Any]:
        """Turn a blueprint into a `config.json`."""

    def holds(self, blueprint: Blueprint) -> bool:
        """Whether this family can express a blueprint without loss."""

    def canonical(self, stored: str) -> str:
        """Return a stored weight's name without prefix and in today's spelling."""

    def foreign_names(self, name: str, blueprint: Blueprint) -> Names:
        """Return the canonical names of one of our weights; several if ours is their concatenation."""

    def stored_name(self, canonical: str, blueprint: Blueprint) -> str:
        """Return the name under which a weight is written."""


@dataclass(frozen=True)
class Architecture:
    """Which heads a published class has."""

    heads: Names = ()
    pooler: bool = False
    attention: str = "bidirectional"


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model family of Hugging Face transformers, as data."""

    model_type: str
    prefix: str
    """Before the encoder's weight names in architectures with a head: `bert.`"""
    bare: str
    """The architecture without heads."""
    config_keys: Names
    """Keys of `config.json` that are fields of `EncoderConfig` under the same name."""
    defaults: Mapping[str, Any]
    """What the family assumes where `config.json` is silent, where it differs from `EncoderConfig`."""
    fixed: Mapping[str, Any]
    """Keys that must have this value, because we do not have the mathematics of another."""
    dropout_key: str
    """Where the dropout of the classifying heads is kept."""
    dropout: float | None
    """Their dropout where `config.json` is silent; none: that of the hidden states."""
    undropped: Names
    """Kinds of heads without dropout."""
    modules: Mapping[str, Names]
    """Our module -> theirs; more than one where ours is fused. `{layer}`, `{group}`, `{inner}` are filled in."""
    head_modules: Mapping[str, Mapping[str, str]]
    """Kind of head -> our module inside the head -> theirs."""
    tied: Mapping[str, str]
    architectures: Mapping[str, Architecture]

    def read_config(self, raw: Mapping[str, Any], stored: Collection[str], architecture: str | None) -> Blueprint:
        config = self._encoder_config(raw)
        published = self.architectures[self._architecture(raw, stored, architecture)].heads
        kinds = tuple(_resolve_extended_kind(kind, stored) for kind in published)
        if not kinds and raw.get(EMBED_POOLING_KEY) is not None:
            head = HeadSpec(kind=EMBED_HEAD, pooling=str(raw[EMBED_POOLING_KEY]), dropout=0.0)
            return Blueprint(config=config, heads={EMBED_HEAD: head}, pooler=self._has(stored, "pooler."))
        if "masked_lm" in published and raw.get("tie_word_embeddings") is False:
            raise BadFile(
                "config.json asks for untied output weights (`tie_word_embeddings`: false); alembert ties them."
            )
        labels = {kind: _read_labels(raw) for kind in kinds if HEAD_KINDS[kind].outputs is None}
        dropout = self._read_dropout(raw, config)
        heads = {
            kind: HeadSpec(
                kind=kind,
                outputs=len(labels[kind]) if kind in labels else None,
                dropout=0.0 if kind in self.undropped else dropout,
                answers=_read_answers(raw) if kind == "classify" else "single",
            )
            for kind in kinds
        }
        pooler = not kinds and self._has(stored, "pooler.")
        return Blueprint(config=config, heads=heads, pooler=pooler, labels=labels)

    def write_config(self, blueprint: Blueprint) -> dict[str, Any]:
        config = blueprint.config
        raw: dict[str, Any] = {key: getattr(config, key) for key in self.config_keys}
        raw["model_type"] = self.model_type
        raw["architectures"] = [self._architecture_of(blueprint)]
        if config.attention == "causal":
            raw["is_decoder"] = True
        dropouts = [spec.dropout for kind, spec in blueprint.heads.items() if kind not in self.undropped]
        if dropouts:
            raw[self.dropout_key] = dropouts[0]
        if EMBED_HEAD in blueprint.heads:
            raw[EMBED_POOLING_KEY] = blueprint.heads[EMBED_HEAD].pooling
        for labels in blueprint.labels.values():
            raw["id2label"] = {str(i): label for i, label in enumerate(labels)}
            raw["label2id"] = {label: i for i, label in enumerate(labels)}
        for spec in blueprint.heads.values():
            if spec.answers in _PROBLEM_TYPES:
                raw["problem_type"] = _PROBLEM_TYPES[spec.answers]
        return raw

    def holds(self, blueprint: Blueprint) -> bool:
        if self._architecture_of(blueprint) is None:
            return False
        stored = [added for kind, (_, added) in EXTENDED_HEADS.items() if kind in blueprint.heads]
        stored += ["pooler.dense.weight"] if blueprint.pooler else []
        return self.read_config(self.write_config(blueprint), stored, None) == blueprint

    def canonical(self, stored: str) -> str:
        # Models wrapped for several GPUs were often saved with the wrapper's name in front.
        name = stored.removeprefix("module.").removeprefix(self.prefix)
        return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))

    def foreign_names(self, name: str, blueprint: Blueprint) -> Names:
        module, _, suffix = name.rpartition(".")
        if module.startswith("heads."):
            _, head, *inside = module.split(".")
            theirs = self.head_modules[blueprint.heads[head].kind][".".join(inside)]
            return (f"{theirs}.{suffix}",)
        module, numbers = _template(module.removeprefix("encoder."), blueprint.config)
        return tuple(f"{theirs.format(**numbers)}.{suffix}" for theirs in self.modules[module])

    def stored_name(self, canonical: str, blueprint: Blueprint) -> str:
        in_head = self._has([canonical], *(f"{m}." for kind in self.head_modules.values() for m in kind.values()))
        is_bare = not blueprint.heads.keys() - {EMBED_HEAD}
        return canonical if in_head or is_bare else self.prefix + canonical

    def _encoder_config(self, raw: Mapping[str, Any]) -> EncoderConfig:
        for key, value in self.fixed.items():
            if raw.get(key) not in (value, None):
                raise BadFile(
                    f"config.json asks for `{key}` = {raw[key]!r}, which alembert does not have; "
                    f"only {value!r} can be opened."
                )
        config_values = {key: raw[key] for key in self.config_keys if raw.get(key) is not None}
        if isinstance(name := config_values.get("hidden_act"), str):
            config_values["hidden_act"] = _ACTIVATION_ALIASES.get(name, name)
        if "vocab_size" not in config_values:
            raise BadFile("config.json has no `vocab_size`; expected the number of rows of the token embedding.")
        attention = "causal" if raw.get("is_decoder") else "bidirectional"
        return EncoderConfig(**{**self.defaults, **config_values}, attention=attention)

    def _architecture(self, raw: Mapping[str, Any], stored: Collection[str], architecture: str | None) -> str:
        declared = raw.get("architectures") or []
        name = architecture or (declared[0] if isinstance(declared, list) and declared else None)
        if isinstance(name, str) and name in self.architectures:
            return name
        if name is not None:
            names = ", ".join(self.architectures)
            raise BadFile(f"The architecture {name!r} is not known for `{self.model_type}`; expected one of {names}.")
        return self._architecture_from_weights(stored)

    def _architecture_from_weights(self, stored: Collection[str]) -> str:
        published = {kind: own for kind, own in self.head_modules.items() if kind not in EXTENDED_HEADS}
        kinds = {k for k, m in published.items() if self._has(stored, *(f"{x}." for x in m.values()))}
        if ambiguous := kinds & {"classify", "tag", "choice"}:
            options = ", ".join(n for n, a in self.architectures.items() if ambiguous & set(a.heads))
            raise BadFile(
                "config.json does not say what the weight `classifier` is for (no `architectures`). "
                f"Say which architecture it is (architecture=..., --architecture): {options}."
            )
        fitting = [n for n, a in self.architectures.items() if set(a.heads) == kinds]
        return fitting[0] if fitting else self.bare

    def _architecture_of(self, blueprint: Blueprint) -> str | None:
        if any(name != spec.kind for name, spec in blueprint.heads.items()):
            return None
        kinds = {EXTENDED_HEADS.get(kind, (kind,))[0] for kind in blueprint.heads if kind != EMBED_HEAD}
        same_heads = {n: a for n, a in self.architectures.items() if set(a.heads) == kinds}
        by_attention = [n for n, a in same_heads.items() if a.attention == blueprint.config.attention]
        return next(iter([*by_attention, *same_heads]), None)

    def _read_dropout(self, raw: Mapping[str, Any], config: EncoderConfig) -> Any:
        stated = raw.get(self.dropout_key)
        if stated is not None:
            return stated
        return config.hidden_dropout_prob if self.dropout is None else self.dropout

    @staticmethod
    def _has(names: Collection[str], *prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in names)


def _resolve_extended_kind(kind: str, stored: Collection[str]) -> str:
    """Return the kind of head that the stored weights make of a published one."""
    return next(
        (ours for ours, published in EXTENDED_HEADS.items() if published[0] == kind and published[1] in stored), kind
    )


def _read_answers(raw: Mapping[str, Any]) -> str:
    """Return what the outputs of a classifier say.

    >>> _read_answers({"problem_type": "regression"}), _read_answers({})
    ('number', 'single')
    """
    return next((ours for ours, theirs in _PROBLEM_TYPES.items() if theirs == raw.get("problem_type")), "single")


def _read_labels(raw: Mapping[str, Any]) -> Names:
    """Return the labels in the order of their numbers; transformers' default is LABEL_0 and LABEL_1.

    >>> _read_labels({"id2label": {"1": "I", "0": "B"}})
    ('B', 'I')
    """
    table = raw.get("id2label")
    if table is None:
        count = raw.get("num_labels", 2)
        if not isinstance(count, int) or not 1 <= count <= 1_000_000:
            raise BadFile(f"config.json has `num_labels` = {count!r}; expected a whole number from 1 up.")
        return _default_labels(count)
    if not isinstance(table, dict) or sorted(map(str, table)) != sorted(map(str, range(len(table)))) or not table:
        raise BadFile("config.json has an `id2label` that does not number its labels 0, 1, 2, ...; mend the numbers.")
    by_number = {int(number): str(label) for number, label in table.items()}
    labels = tuple(by_number[i] for i in range(len(by_number)))
    if len(set(labels)) != len(labels):
        raise BadFile("config.json has an `id2label` in which one label occurs twice; give each a name of its own.")
    return labels


def _template(module: str, config: EncoderConfig) -> tuple[str, dict[str, int]]:
    match = re.match(r"blocks\.(\d+)\.", module)
    if not match:
        return module, {}
    layer = int(match[1])
    group, inner = divmod(layer, config.inner_group_num)
    return f"blocks.{{layer}}.{module[match.end() :]}", {"layer": layer, "group": group, "inner": inner}
