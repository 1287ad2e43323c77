"""Detect the language of a text, without a model.

In: a text. Out: a code such as "en" or "zh", or "und" where the evidence is too weak. The script decides first
(Chinese, Japanese, Korean, Russian, Arabic, Greek, Hebrew); among languages in Latin letters, the frequent function
words decide. A word that several languages share counts for each of them in part.

The trade-off: titles of three words have no function words and stay "und"; whole abstracts are detected reliably
(docs/lab/cleaning.md has the figures). Only the beginning and the middle of a long text are examined.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

UNKNOWN_LANGUAGE = "und"
_SAMPLE = 1500
_LATIN_WORD = re.compile(r"[^\W\d_]+")
_SCRIPTS = {
    "kana": re.compile("[\u3040-\u30ff]"),
    "han": re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"),
    "ko": re.compile("[\uac00-\ud7a3]"),
    "ru": re.compile("[\u0400-\u04ff]"),
    "ar": re.compile("[\u0600-\u06ff]"),
    "el": re.compile("[\u0370-\u03ff]"),
    "he": re.compile("[\u0590-\u05ff]"),
}
_ASCII = re.compile("[\x00-\x7f]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_LETTERS_PER_IDEOGRAPH = 3
_LEAST_SCORE = 2.0  # one function word is no evidence: "non" and "die" occur in English titles too
_SMALL_WORDS = {
    "en": """the of and in to with for was were that this is are by as from on at be or we an which have has not these
        between than after their it been but its during may can also both no who when there all using more into through
        among other such those had our while only should however did each within""",
    "de": """der die das und in den von zu mit ist im für auf des dem eine ein bei als werden sich nach auch nicht es wird
        oder sind an einer durch aus zur wurde wurden zum über einen kann eines haben sowie können sie war vor dass
        unter hat zwischen mehr bis nur wie gegen diese dieser einem noch""",
    "fr": """de la le les et des en à un une du dans pour par est sur que au avec ou ont plus été sont aux ces qui ne pas
        cette entre chez être ce il se comme l d après sans nous sous leur deux mais était peut son elle même""",
    "es": """de la el en y los las del con que por se para una un es al como más fue no su entre o son lo pacientes fueron
        sus este esta sin sobre está ha tratamiento desde durante muy también estudio mediante ser han tras hay cuando
        estos según e""",
    "it": """di e la il in dei del della con per che è un una le sono i da nel al ai gli delle alla si come più o lo
        dal stato nei ha tra dalla nella questo stati anche degli sia alle su questa essere se ed l hanno può""",
    "pt": """de a e o que do da em os dos para com as no na uma um por foi das não ao se mais foram entre como é são à
        pacientes ou pela nos sua pelo estudo após nas também ser aos tratamento seu sem sobre há ter muito até""",
    "nl": """de van het een en in met voor is op te bij dat zijn werd aan door die niet om ook worden wordt als er deze
        tot naar na uit kan dit was werden hebben heeft meer maar geen tussen onder patiënten dan zoals moet""",
    "pl": """w i z na do się u oraz o po że od nie jest za dla przez są lub który jako było a ze które był przed może
        została między chorych badania pod tym była ich tego także być ma jak""",
    "sv": """och i av att en för med på som är till den det om har inte ett de vid från eller var kan efter hos men ska
        under mellan genom även samt""",
    "hu": """a az és hogy is nem egy volt meg vagy mint de ez csak már még el voltak után között szerint során amely
        betegek esetén lehet""",
    "tr": """ve bir bu ile için olarak de da olan daha en çok sonra gibi göre arasında hastaların çalışma""",
}


def detect_language(text: str) -> str:
    """Detect the language of a text.

    >>> detect_language("The patients were treated with aspirin for a week."), detect_language("糖尿病患者的治疗")
    ('en', 'zh')
    """
    sample = _sample(text)
    script = _script(sample)
    return script if script is not None else _by_words(sample)


def _sample(text: str) -> str:
    if len(text) <= 2 * _SAMPLE:
        return text
    middle = len(text) // 2
    return f"{text[:_SAMPLE]} {text[middle : middle + _SAMPLE]}"


def _script(sample: str) -> str | None:
    """Decide by script; None if most of the text is in Latin letters, or has no letters at all."""
    if sample.isascii():
        return None
    foreign = _ASCII.sub("", sample)
    counts = {name: len(pattern.findall(foreign)) for name, pattern in _SCRIPTS.items()}
    counts["han"] *= _LETTERS_PER_IDEOGRAPH
    counts["kana"] *= _LETTERS_PER_IDEOGRAPH
    east = counts["han"] + counts["kana"]
    best = max(counts, key=lambda name: counts[name])
    strength = east if best in ("han", "kana") else counts[best]
    if strength <= len(_LATIN.findall(sample)):
        return None
    if best in ("han", "kana"):
        return "ja" if counts["kana"] * 10 > east else "zh"
    return best


def _weights() -> dict[str, list[tuple[str, float]]]:
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for language, words in _SMALL_WORDS.items():
        for word in dict.fromkeys(words.split()):
            owners[word].append(language)
    return {word: [(language, 1 / len(shared)) for language in shared] for word, shared in owners.items()}


_WEIGHTS = _weights()


def _by_words(sample: str) -> str:
    words = Counter(_LATIN_WORD.findall(sample.lower()))
    scores: defaultdict[str, float] = defaultdict(float)
    for word in words.keys() & _WEIGHTS.keys():
        for language, weight in _WEIGHTS[word]:
            scores[language] += weight * words[word]
    ranked = sorted(scores, key=lambda language: -scores[language])
    if not ranked or scores[ranked[0]] < max(_LEAST_SCORE, 0.04 * words.total()):
        return UNKNOWN_LANGUAGE
    clear = len(ranked) == 1 or scores[ranked[0]] >= 1.3 * scores[ranked[1]]
    return ranked[0] if clear else UNKNOWN_LANGUAGE
