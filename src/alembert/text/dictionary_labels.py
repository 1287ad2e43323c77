"""Label sentences with dictionaries, and mark where the dictionaries are unsure.

In: lexicons by label, then the sentences of a document. Out: for each sentence its entities and its unknown
stretches, at characters. A dictionary is right about what it has in most places and silent about much that it has not,
so a word that it does not label is not always outside of all entities. The rules that mark a stretch as unknown, by
their names:

    short       a match of up to three characters, or of up to four capitals, that the text does not define
    ambiguous   matches of different labels that cover the same words, or cross each other (of nested ones the longer counts)
    ordinary    a match that is spelt like an ordinary word, a unit or a statistic (`lexicon_compiler`)
    capitals    a word that no lexicon has, with a digit, with a capital after its first letter, or with a capital first
                letter inside a sentence
    endings     a word that no lexicon has and that ends like names of diseases and drugs do (hepatotoxicity, adriamycin),
                or that many names end with (toxicity, deficiency), with an adjective before it
    neighbours  a word before a match that is an adjective by its ending, joined by a hyphen or by `and` ("breast and ovarian
                cancer"), and a word after it that many names end with: the right entity is probably longer

An abbreviation that the text defines for a match ("multiple sclerosis (MS)") is an entity of the same label in all
sentences. A rule that is left out leaves the entity, or the word, as the dictionary says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from alembert.text.abbreviations import find_abbreviations
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon_cache import LexiconSource, StopLists, open_lexicons
from alembert.text.lexicon_compiler import FUNCTION_WORDS, RESEARCH_WORDS, STOP_WORDS, make_stop_list_key
from alembert.text.sentences import Span

UNKNOWN_RULES: Final = ("short", "ambiguous", "ordinary", "capitals", "endings", "neighbours")
LabelledMatch = tuple[int, int, str]
"""Start, end and label."""
_SHORTEST_SURE: Final = 4
_SHORTEST_SURE_CAPITALS: Final = 5
_TOKEN: Final = re.compile(r"[^\s()\[\]{},;:\"“”]+(?<![.'’?!])|(?<=\w)['’]s\b")
_WORD_BEFORE: Final = re.compile(r"([^\W\d_][\w'’]*(?:-[\w'’]+)*)([ -])$")
_JOINED_BEFORE: Final = re.compile(r"([^\W\d_][\w'’-]+ (?:and|or|and/or)) $")
_WORD_AFTER: Final = re.compile(r" ([^\W\d_]+)")
_WORD: Final = re.compile(r"[^\W\d_]{5,}")
_ADJECTIVE: Final = re.compile(r"(?:al|ic|ous|ive|ary|ory|ar|oid|ine|ant|ent|able|ible|less|like|genic|blastic)$")
_NAME_ENDING: Final = re.compile(
    r"(?:itis|osis|omas?|a?emi[ac]|uria|path(?:y|ies|ic)|plegi[ac]|algia|trophy|rrh?ag[ei]c?|rrh?o?ea|penia|plasia|philia|"
    r"spasms?|cephal(?:y|us|ic)|toxic(?:ity|ities)?|tens(?:ion|ive)|convulsi(?:ons?|ve)|kinesias?|thisia|ectomy|"
    r"mycins?|cillins?|olol|statins?|azoles?|azepam|pril|sartan|caine|idine|oxacin|tinib|mab|vir|platin|rubicin|sterone|"
    r"ylate|amide|imine|phosphate|chloride|nitrate|sulph?ate|oxide)$"
)
_NO_ADJECTIVES: Final = frozenset(
    f"{FUNCTION_WORDS} several different recent present patient treatment total typical potential clinical relevant "
    "additional significant similar various important non-significant positive negative subsequent".split()
)
_HEAD_WORDS: Final = """
abnormalities abnormality abuse acid acids anomalies anomaly attack attacks cancer cancers carcinoma chloride damage defect
defects deficiencies deficiency deficient deficits deficit dependence disease diseases disorder disorders dysfunction failure
hydrochloride hypoplasia impairment infection infections injuries injury lesion lesions malformation malformations overdose
oxide poisoning retardation sodium sulfate symptom symptoms syndrome syndromes toxicities toxicity tumor tumors tumour
tumours withdrawal
"""
_HEADS: Final = frozenset(_HEAD_WORDS.split())
"""Words that names end with."""
_MODIFIERS: Final = frozenset(RESEARCH_WORDS.split())


@dataclass(frozen=True, slots=True)
class DictionaryLabels:
    """What dictionaries say about a sentence."""

    entities: tuple[LabelledMatch, ...]
    unknown: tuple[Span, ...]


@dataclass(frozen=True, eq=False)
class DictionaryLabeller:
    """Lexicons prepared for labelling."""

    gazetteers: tuple[Gazetteer, ...]
    """One for each label, so that all labels of a stretch are found."""
    rules: frozenset[str] = frozenset(UNKNOWN_RULES)
    warnings: tuple[str, ...] = ()
    """What could not be used of the lexicons."""

    @classmethod
    def from_lexicons(
        cls, lexicons: Iterable[LexiconSource], rules: Collection[str] = UNKNOWN_RULES
    ) -> DictionaryLabeller:
        """Put the lexicons of a label together; ordinary words are matched only if a rule marks them as unknown."""
        by_label: dict[str, list[LexiconSource]] = {}
        for lexicon in lexicons:
            by_label.setdefault(lexicon.label, []).append(lexicon)
        lists = StopLists(stop=() if "ordinary" in rules else STOP_WORDS)
        opened = [open_lexicons(own, lists) for own in by_label.values()]
        warnings = tuple(warning for each in opened for warning in each.warnings())
        return cls(tuple(each.gazetteer for each in opened), frozenset(rules), warnings)

    def label(
        self, documents: Sequence[Sequence[str]], wanted: Sequence[Sequence[bool]] | None = None
    ) -> list[list[DictionaryLabels | None]]:
        """Label the sentences of documents, together, which is faster; none for those that are not wanted."""
        sentences = [sentence for document in documents for sentence in document]
        by_label = [gazetteer.find_all(sentences) for gazetteer in self.gazetteers]
        matches = iter([[match[:3] for match in chain(*each)] for each in zip(*by_label, strict=True)])
        wanted = wanted or [[True] * len(document) for document in documents]
        return [
            self._label_document(document, [next(matches) for _ in document], own)
            for document, own in zip(documents, wanted, strict=True)
        ]

    def _label_document(
        self, sentences: Sequence[str], matches: Sequence[list[LabelledMatch]], wanted: Sequence[bool]
    ) -> list[DictionaryLabels | None]:
        defined: dict[str, str] = {}
        for sentence, own in zip(sentences, matches, strict=True):
            for name, label in _find_definitions(sentence, own):
                defined.setdefault(name, label)
        return [
            self._label(sentence, own, defined) if is_wanted else None
            for sentence, own, is_wanted in zip(sentences, matches, wanted, strict=True)
        ]

    def _label(self, sentence: str, matches: list[LabelledMatch], defined: dict[str, str]) -> DictionaryLabels:
        matches, unsure = resolve_overlaps([*matches, *_find_defined(sentence, defined)])
        if "ambiguous" not in self.rules:
            matches, unsure = _keep_first([*matches, *unsure]), []
        open_spans = [span[:2] for span in unsure]
        entities: list[LabelledMatch] = []
        for start, end, label in matches:
            if self._is_unsure(sentence[start:end], defined):
                open_spans.append((start, end))
            else:
                entities.append((start, end, label))
        if "capitals" in self.rules:
            open_spans += _find_unknown_names(sentence, matches)
        if "endings" in self.rules:
            open_spans += _find_name_endings(sentence)
        if "neighbours" in self.rules:
            open_spans += _find_neighbours(sentence, entities)
        return DictionaryLabels(tuple(entities), merge_spans(_outside(open_spans, entities)))

    def _is_unsure(self, surface: str, defined: Collection[str]) -> bool:
        is_short = len(surface) < (_SHORTEST_SURE_CAPITALS if surface.isupper() else _SHORTEST_SURE)
        if "short" in self.rules and is_short and surface not in defined:
            return True
        return "ordinary" in self.rules and make_stop_list_key(surface) in STOP_WORDS and surface not in defined


def resolve_overlaps(matches: Iterable[LabelledMatch]) -> tuple[list[LabelledMatch], list[LabelledMatch]]:
    """Keep the longer of nested matches; return apart those that cross, or cover the same words, with different labels.

    >>> resolve_overlaps([(0, 9, "Disease"), (0, 4, "Chemical"), (12, 15, "Gene"), (12, 15, "Chemical")])
    ([(0, 9, 'Disease')], [(12, 15, 'Chemical'), (12, 15, 'Gene')])
    """
    kept: list[LabelledMatch] = []
    unsure: list[LabelledMatch] = []
    for match in sorted(set(matches), key=lambda each: (each[0] - each[1], each[0], each[2])):
        rivals = [other for other in (*kept, *unsure) if match[0] < other[1] and other[0] < match[1]]
        if not rivals:
            kept.append(match)
        elif any(match[2] != other[2] and not _is_inside(match, other) for other in rivals):
            kept = [other for other in kept if other not in rivals]
            unsure += [other for other in (*rivals, match) if other not in unsure]
    return sorted(kept), unsure


def _keep_first(matches: Iterable[LabelledMatch]) -> list[LabelledMatch]:
    kept: list[LabelledMatch] = []
    for match in matches:
        if not any(match[0] < other[1] and other[0] < match[1] for other in kept):
            kept.append(match)
    return sorted(kept)


def _is_inside(inner: LabelledMatch, outer: LabelledMatch) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1] and inner[:2] != outer[:2]


def _find_definitions(sentence: str, matches: Sequence[LabelledMatch]) -> Iterator[tuple[str, str]]:
    """Yield the abbreviations that a sentence defines for matches, with the label."""
    for short, long in find_abbreviations(sentence) if matches else ():
        for start, end, label in matches:
            if start <= long[0] and end == long[1]:
                yield sentence[slice(*short)], label


def _find_defined(sentence: str, defined: dict[str, str]) -> Iterator[LabelledMatch]:
    for name, label in defined.items():
        for found in re.finditer(rf"(?<![\w-]){re.escape(name)}(?!\w)", sentence):
            yield found.start(), found.end(), label


def _find_unknown_names(sentence: str, matches: Sequence[LabelledMatch]) -> Iterator[Span]:
    """Yield the words outside of matches that are spelt like names."""
    covered = [False] * len(sentence)
    for start, end, _ in matches:
        covered[start:end] = [True] * (end - start)
    for found in _TOKEN.finditer(sentence):
        start, end = found.span()
        if _is_spelt_like_a_name(found[0], start == 0) and not any(covered[start:end]):
            yield start, end


def _is_spelt_like_a_name(token: str, is_first: bool) -> bool:
    """Return whether a word is spelt like a name.

    >>> [_is_spelt_like_a_name(word, False) for word in ("Crohn", "p53", "mRNA", "mice", "12", "SD", "We")]
    [True, True, True, False, False, False, False]
    """
    if len(token) < 2 or (token.islower() and token.isalpha()) or token.casefold() in STOP_WORDS:
        return False
    if any(map(str.isdigit, token)):
        return any(map(str.isalpha, token))
    return any(map(str.isupper, token[is_first:]))


def _find_name_endings(sentence: str) -> Iterator[Span]:
    """Yield the words that end like names, or that names end with, and adjectives before them."""
    for found in _WORD.finditer(sentence.lower()):
        if found[0] in STOP_WORDS and found[0] not in _HEADS:
            continue
        if found[0] in _HEADS or _NAME_ENDING.search(found[0]):
            yield found.span()
            yield from _find_modifier(sentence, found.start())


def _find_modifier(sentence: str, start: int) -> Iterator[Span]:
    """Yield the word before a place, if it is an adjective or joined by a hyphen."""
    before = _WORD_BEFORE.search(sentence, max(0, start - 40), start)
    if before and (before[2] == "-" or _is_modifier(before[1].lower())):
        yield before.span(1)


def _find_neighbours(sentence: str, entities: Iterable[LabelledMatch]) -> Iterator[Span]:
    """Yield the words beside entities that may belong to them."""
    for start, end, _ in entities:
        yield from _find_modifier(sentence, start)
        if joined := _JOINED_BEFORE.search(sentence, max(0, start - 40), start):
            yield joined.span(1)
        after = _WORD_AFTER.match(sentence, end)
        if after and after[1].lower() in _HEADS:
            yield after.span(1)


def _is_modifier(word: str) -> bool:
    if word in _NO_ADJECTIVES:
        return False
    return "-" in word or word in _MODIFIERS or (len(word) > 4 and bool(_ADJECTIVE.search(word)))


def _outside(spans: Iterable[Span], entities: Sequence[LabelledMatch]) -> Iterator[Span]:
    """Yield the spans that share no character with an entity."""
    for start, end in spans:
        if not any(start < other_end and other < end for other, other_end, _ in entities):
            yield start, end


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sort spans and join those that overlap.

    >>> merge_spans([(5, 9), (0, 2), (7, 12)])
    ((0, 2), (5, 12))
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
