"""The families that can be opened and saved, by `model_type`."""

from typing import Final

from alembert.errors import BadFile, BadSetting
from alembert.files.families.albert import ALBERT
from alembert.files.families.bert import BERT
from alembert.files.families.native import NativeFormat
from alembert.files.family import Blueprint, CheckpointFormat

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
