"""Chinese whole-word masks on real text: they follow the segmenter and the user's dictionary."""

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from alembert.corpus.document import Document
from alembert.corpus.excerpt import read_excerpt
from alembert.corpus.readers import read
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.data.masking import MaskSettings, choose_positions
from alembert.data.order import make_rng
from alembert.data.sequences import TokenSpan, build_instance
from alembert.text.sentences import CJK
from alembert.text.tokenizer import Tokenizer
from alembert.text.words import Dictionary, JiebaSegmenter, find_words

pytest.importorskip("rjieba")
IS_CHINESE = re.compile(f"[{CJK}]+")


def texts_of(path: Path, count: int) -> list[str]:
    """The documents of a CoNLL file, or of one with a pair of questions a line."""
    items = [item.text for item in islice(read(path), count) if isinstance(item, Document)]
    return [text.replace("\n", " ").replace("\t", " ") for text in items]


@pytest.mark.parametrize("name", ["cMedQANER/dev.txt", "cMedQQ/dev.txt"])
def test_words_are_masked_whole(shared: Path, chinese_albert: Path, tmp_path: Path, name: str) -> None:
    tokenizer = Tokenizer.open(chinese_albert)
    terms = Dictionary.read(shared / "zh/THUOCL_medical.txt")
    texts = texts_of(shared / "zh" / name, 60)
    (tmp_path / "texts.txt").write_text("\n\n".join(texts), encoding="utf8")
    settings = WordSettings(segmenter="jieba", dictionary=shared / "zh/THUOCL_medical.txt")
    part = read_excerpt([tmp_path / "texts.txt"], tokenizer, settings).tokens
    joined = 0
    for document, item in enumerate(islice(read(tmp_path / "texts.txt"), len(part))):
        assert isinstance(item, Document)
        stretch = TokenSpan(document, part.get_token_range(document))
        instance = build_instance(stretch, part.ids, part.flags, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
        chosen = set(choose_positions(instance, MaskSettings(unit="word", rate=0.3), make_rng(document)).positions)
        offsets = np.array(tokenizer.encode(item.text, add_special_tokens=False).offsets)
        for start, end in find_words(item.text, JiebaSegmenter(), terms):
            pieces = np.flatnonzero((offsets[:, 0] >= start) & (offsets[:, 1] <= end)) + 1
            if IS_CHINESE.fullmatch(item.text, start, end):
                assert len(chosen & set(pieces.tolist())) in (0, len(pieces)), (name, document)
                joined += len(pieces) > 1
    assert joined > 100
