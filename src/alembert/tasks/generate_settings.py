"""What the task `generate` can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from alembert.errors import BadSetting
from alembert.tasks.decoding.settings import DecodeSettings
from alembert.tasks.setting_checks import saved

_LEAST = 4


def _usual() -> DecodeSettings:
    return DecodeSettings(method="beam", longest=64, no_repeat=3)


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """How texts are written for other texts."""

    kind: Literal["write", "extract"] = "write"
    """write: new text, word by word. extract: the sentences of the source that say most of the target."""
    source: int | None = None
    """Tokens of a source that are read at most; none: all that the model can read beside a target. The rest is cut."""
    target: int = 64
    """Tokens of a target that are learnt from at most; what is cut is counted."""
    judged: int | None = 200
    """Development examples that are written for, each time that the model is judged while it learns; none: all."""
    sentences: int = 3
    """extract: how many sentences are chosen."""
    decoding: DecodeSettings = field(default_factory=_usual)
    """How words are searched."""

    def __post_init__(self) -> None:
        if self.kind not in ("write", "extract"):
            raise BadSetting(f"`kind` of the task is {self.kind!r}; expected write or extract.")
        least = {"source": _LEAST, "target": _LEAST, "judged": 1, "sentences": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise BadSetting(f"`{name}` of the task is {value}; expected {lowest} or more.")
        if self.kind == "extract" and self.source is not None:
            raise BadSetting(
                "`source` is a setting of the kind write; extract reads sources of any length, in windows. Leave it out."
            )

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> GenerateSettings:
        """Make settings of plain values again; raise ValueError for what are none."""
        return saved(cls, table)
