"""The families that can be opened and saved, by `model_type`, and the form of models that no family can hold.

Such models have other positions or norms, span heads or several heads. Their names are ours, nothing is renamed, and
transformers cannot open them; the model card says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from alembert.artifact.disk import check_text, refuse_malformed
from alembert.errors import BadFile, BadSetting
from alembert.files.families.albert import ALBERT
from alembert.files.families.bert import BERT
from alembert.files.family import EXTRA_KEY, Blueprint, CheckpointFormat, Names
from alembert.nn.config import EncoderConfig, suggest
from alembert.nn.heads import HeadSpec

_FORMAT_KEYS: Final = ("model_type", "architectures", "heads", "pooler", "labels", "dtype", EXTRA_KEY)
_OPTIONAL: Final = ("token_features",)
"""Keys that are written if they have a value, so that models without them are written as before."""


class NativeFormat:
    """Blueprints written as they are."""

    model_type: Final = "alembert"
    tied: Final[Mapping[str, str]] = {}

    def read_config(self, raw: Mapping[str, Any], stored: Collection[str], architecture: str | None) -> Blueprint:
        if architecture is not None:
            raise BadFile("This checkpoint names its heads itself; leave the architecture out.")
        config_keys = [field.name for field in fields(EncoderConfig)]
        for key in raw:
            if key not in config_keys and key not in _FORMAT_KEYS:
                raise BadFile(f"config.json has an unknown key `{key}`.{suggest(key, config_keys)}")
        if not isinstance(raw.get(EXTRA_KEY, {}), dict):
            raise BadFile(f"config.json has an `{EXTRA_KEY}` that is no table; remove it.")
        with refuse_malformed("config.json is not a complete alembert configuration."):
            return Blueprint(
                config=EncoderConfig(**{key: raw[key] for key in config_keys if key in raw}),
                heads={name: HeadSpec(**spec) for name, spec in raw["heads"].items()},
                pooler=bool(raw["pooler"]),
                labels={head: tuple(map(check_text, names)) for head, names in raw["labels"].items()},
            )

    def write_config(self, blueprint: Blueprint) -> dict[str, Any]:
        config = {name: value for name, value in asdict(blueprint.config).items() if name not in _OPTIONAL or value}
        return {
            **config,
            "model_type": self.model_type,
            "architectures": ["AlembertModel"],
            "heads": {name: asdict(spec) for name, spec in blueprint.heads.items()},
            "pooler": blueprint.pooler,
            "labels": {head: list(labels) for head, labels in blueprint.labels.items()},
        }

    def holds(self, blueprint: Blueprint) -> bool:
        return True

    def canonical(self, stored: str) -> str:
        return stored

    def foreign_names(self, name: str, blueprint: Blueprint) -> Names:
        return (name,)

    def stored_name(self, canonical: str, blueprint: Blueprint) -> str:
        return canonical


FAMILIES: Final[dict[str, CheckpointFormat]] = {family.model_type: family for family in (BERT, ALBERT, NativeFormat())}


def get_family(model_type: object, family: str | None = None) -> CheckpointFormat:
    """Return the family that a `config.json` names, or the one that the caller names."""
    names = ", ".join(FAMILIES)
    if family is not None:
        if family not in FAMILIES:
            raise BadSetting(f"There is no family {family!r}; alembert opens {names}.")
        return FAMILIES[family]
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    if model_type is None:
        raise BadFile(
            f"config.json has no `model_type`; expected one of {names}. Say which family it is with family=... "
            "(on the command line: alembert convert FOLDER --family bert --out NEW)."
        )
    raise BadFile(
        f"config.json says `model_type` = {model_type!r}; alembert opens {names}. If the weights are those of one of "
        "them, say so: alembert convert FOLDER --family bert --out NEW. Else take a model that is: "
        "alembert finetune --model hub:organisation/name."
    )


def choose_family(blueprint: Blueprint) -> CheckpointFormat:
    """Return the first family that holds a model without loss, the published ones before our own."""
    return next(family for family in FAMILIES.values() if family.holds(blueprint))
