"""Language codes of libraries (ISO 639-2/B, as MEDLINE has them) turned into the two letters everyone else uses.

Codes not in the table stay as they are; "und" and "mul" say nothing about a text and become None.
"""

from __future__ import annotations

from functools import lru_cache

_SHORT = {
    "eng": "en", "chi": "zh", "zho": "zh", "ger": "de", "deu": "de", "fre": "fr", "fra": "fr", "spa": "es",
    "por": "pt", "ita": "it", "jpn": "ja", "kor": "ko", "rus": "ru", "dut": "nl", "nld": "nl", "pol": "pl",
    "hun": "hu", "cze": "cs", "ces": "cs", "dan": "da", "nor": "no", "swe": "sv", "fin": "fi", "tur": "tr",
    "ara": "ar", "heb": "he", "per": "fa", "fas": "fa", "gre": "el", "ell": "el", "ukr": "uk", "bul": "bg",
    "rum": "ro", "ron": "ro", "hrv": "hr", "srp": "sr", "slv": "sl", "slo": "sk", "slk": "sk", "lit": "lt",
    "lav": "lv", "est": "et", "vie": "vi", "tha": "th", "hin": "hi", "ind": "id", "cat": "ca", "ice": "is",
}  # fmt: skip


@lru_cache(maxsize=1024)
def short(code: str | None) -> str | None:
    """Give the two-letter code of a language.

    >>> short("chi")
    'zh'
    """
    code = (code or "").strip().lower()
    if code in ("", "und", "mul"):
        return None
    return _SHORT.get(code, code.split("-")[0])
