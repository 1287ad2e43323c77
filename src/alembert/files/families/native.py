"""alembert's own form of checkpoints, for models that no published family can hold.

Such models have other positions or norms, span heads or several heads. The names are ours, nothing is renamed, and transformers cannot open it; the model card says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from alembert.artifact.disk import check_text, refuse_malformed
from alembert.errors import BadFile
from alembert.files.family import EXTRA_KEY, Blueprint, Names
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
