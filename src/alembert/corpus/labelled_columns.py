"""Which columns of labelled data hold the text, the second text of a pair, the label, and the document.

In: all records of a file and the options. Out: the columns, and a sentence that says what was told and from what.
Options come first, then usual names, then content: a label has few different values or is a number, texts are the
long columns, and a column that counts the rows is neither. Where content leaves a choice, nothing is guessed: the
sentence says which option decides it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from alembert.corpus.labelled_names import GROUPS, LABELS, PAIRS, ROW_IDS, SECTION_ID, TEXTS
from alembert.corpus.labelled_records import as_number, mostly_numbers
from alembert.corpus.readers.contract import Damaged, ReadOptions, how_to_set
from alembert.corpus.readers.records import field

Records = Sequence[Mapping[str, Any]]
_LABEL_SIZE: Final = 40
"""Characters of a label on average, at most, where only content tells."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns, or paths of fields inside fields."""

    texts: tuple[str, ...]
    label: str | None
    """None: labels are not looked at."""
    title: str | None = None
    group: str | None = None
    id: str | None = None
    by_content: bool = False
    unused: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Say what was told."""
        if self.group == SECTION_ID:
            return f"read as documents ({SECTION_ID} and a name) of sentences with a label each"
        texts = (
            f"the texts of a pair are in columns {self.texts[0]} and {self.texts[1]}"
            if len(self.texts) > 1
            else f"the text is in column {self.texts[0]}"
        )
        how = ", as their content tells" if self.by_content else ""
        rest = f"; not used: {', '.join(self.unused[:12])}" if self.unused else ""
        group = f", the document in column {self.group}" if self.group else ""
        label = f", the label in column {self.label}" if self.label else ""
        return f"{texts}{label}{group}{how}{rest}"


@dataclass(frozen=True)
class _Profile:
    """What the values of a column look like."""

    name: str
    rows: int
    distinct: int
    numbers: int
    is_whole: bool
    length: float
    has_lists: bool

    @property
    def is_number(self) -> bool:
        return mostly_numbers(self.numbers, self.rows)

    @property
    def counts_rows(self) -> bool:
        return self.is_number and self.is_whole and self.distinct == self.rows > 2

    @property
    def is_label(self) -> bool:
        is_few = self.distinct <= max(2.0, math.sqrt(self.rows)) and self.length <= _LABEL_SIZE
        return self.has_lists or (not self.counts_rows and (self.is_number or is_few))

    @property
    def is_text(self) -> bool:
        return self.rows > 0 and not self.is_number and not self.has_lists


def columns_of(records: Records, options: ReadOptions, *, labelled: bool = True) -> Columns:
    """Tell the columns of a file, or raise `Damaged` with the option that would.

    A file that is not labelled may have a column of labels; it is no text, and is not used.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    lower = {name.lower(): name for name in reversed(names)}
    title = _asked(options.title, names, records, "title")
    group = _asked(options.id, names, records, "id") or _first(lower, GROUPS)
    row_id = _first(lower, ROW_IDS)
    asked = options.label if labelled or options.label in names else None
    label = _asked(asked, names, records, "label") or _first(lower, LABELS)
    texts = _asked_texts(options, names, records) or _named_texts(lower, label)
    by_content = (labelled and not label) or not texts
    if by_content:
        taken = {label, title, group, row_id, *texts}
        profiles = [_profile(name, records) for name in names if name not in taken]
        if labelled:
            label = label or _label_by_content(profiles, names, has_texts=bool(texts))
        texts = texts or _texts_by_content(profiles, label, names)
    label = label if labelled else None
    used = {*texts, label, title, group, row_id}
    return Columns(
        texts=texts,
        label=label,
        title=title,
        group=group,
        id=row_id,
        by_content=by_content,
        unused=tuple(name for name in names if name not in used),
    )


def _first(lower: Mapping[str, str], known: Sequence[str]) -> str | None:
    return next((lower[name] for name in known if name in lower), None)


def _asked(name: str | None, names: Sequence[str], records: Records, option: str) -> str | None:
    """Find a column that was asked for by its name, by its number, or by a path into nested fields."""
    if name is None or name in names:
        return name
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return names[int(name) - 1]
    if any(field(record, name) is not None for record in records):
        return name
    raise Damaged(f"there is no column {name}; the file has {_listed(names)}; {how_to_set(option)}")


def _asked_texts(options: ReadOptions, names: Sequence[str], records: Records) -> tuple[str, ...]:
    if len(options.text) > 2:
        raise Damaged(
            f"{len(options.text)} columns of text were asked for; expected one, or two for pairs; " + how_to_set("text")
        )
    return tuple(found for name in options.text if (found := _asked(name, names, records, "text")))


def _named_texts(lower: Mapping[str, str], label: str | None) -> tuple[str, ...]:
    pair = next(((lower[a], lower[b]) for a, b in PAIRS if a in lower and b in lower), None)
    if pair and label not in pair:
        return pair
    one = next((lower[name] for name in TEXTS if name in lower and lower[name] != label), None)
    return (one,) if one else ()


def _profile(name: str, records: Records) -> _Profile:
    values = [value for record in records if (value := record.get(name)) not in (None, "")]
    spelt = [value.strip() if isinstance(value, str) else str(value) for value in values]
    numbers = [number for value in spelt if (number := as_number(value)) is not None]
    return _Profile(
        name=name,
        rows=len(values),
        distinct=len(set(spelt)),
        numbers=len(numbers),
        is_whole=all(number.is_integer() for number in numbers),
        length=sum(map(len, spelt)) / max(1, len(spelt)),
        has_lists=any(isinstance(value, list) for value in values),
    )


def _label_by_content(profiles: Sequence[_Profile], names: Sequence[str], *, has_texts: bool) -> str:
    longest = max((each for each in profiles if each.is_text), key=lambda each: each.length, default=None)
    fit = [each.name for each in profiles if each.is_label and (has_texts or each is not longest)]
    if len(fit) == 1:
        return fit[0]
    found = f"{_listed(fit)} could each hold the label" if fit else "no column looks like a label"
    raise Damaged(f"{found}; the file has {_listed(names)}; {how_to_set('label')}")


def _texts_by_content(profiles: Sequence[_Profile], label: str | None, names: Sequence[str]) -> tuple[str, ...]:
    rest = [each for each in profiles if each.is_text and each.name != label]
    fit = [each.name for each in rest if not each.is_label] or [each.name for each in rest]
    if len(fit) in (1, 2):
        return tuple(fit)
    found = f"{_listed(fit)} could each hold the text" if fit else "no column looks like text"
    raise Damaged(f"{found}; the file has {_listed(names)}; {how_to_set('text')}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more
