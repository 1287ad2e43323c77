"""Sentences: exact spans, English and Chinese cases, real abstracts, and input made to be slow."""

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadSetting
from alembert.text.sentences import guess_language, split_sentences

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"

# A bar marks a border; it is not part of the text.
ENGLISH = [
    "The cells grew.| The medium did not.",
    "As shown in Fig. 2, growth stopped.| See also Figs. 3 and 4.",
    "E. coli was grown in broth.| S. aureus was not.",
    "Smith et al. (1998) agreed.| Jones et al. 1999 did not.",
    "This was shown by Smith et al. The result was repeated.".replace("al. The", "al.| The"),
    "Rats received 5 mg. i.v. twice.| Controls received saline.",
    "The effect was small (p < .05).| It vanished later.",
    "It fell by 3.5 mM, p = 0.01.| It rose by 2.7 mM.",
    "The samples were sent by J. Smith and A. B. Jones.| They arrived.",
    "The gift of G. Hart was used.| It worked.",
    "Patients lacked vitamin C. They recovered.".replace("C. They", "C.| They"),
    "Deficiency of protein S. Protein S is rare.".replace("S. Protein", "S.| Protein"),
    "1. Wash the plate.| 2. Dry it.| 3. Count colonies.",
    "1. Aspirin 81 mg daily| 2. Metoprolol 25 mg| 3. Insulin",
    "There were three groups: (a) controls, (b) treated, (c) sham.| All survived.",
    "Panels are shown.| (A) Control.| (B) Treated.",
    "ABSTRACT.METHODS:\n|We took blood.| We froze it.",
    "We took blood.| RESULTS: All froze.| CONCLUSIONS: Blood freezes.",
    "Treated vs. Control mice differed.| Weights did not.",
    "Some, i.e. The Few, agreed.| Others, e.g. Smith, did not.",
    "Dr. Brown and Prof. Green met Mrs. White.| They spoke.",
    "Mouse No. 5 died.| Mouse no. 6 lived.",
    "Reagents came from Sigma (St. Louis, MO).| Others came from St. Gallen.",
    "The U.S. Department agreed.| In the U.S. The rate fell.".replace("U.S. The", "U.S.| The"),
    "Vibrio spp. (n = 5) and Vibrio sp. nov. were found.| None grew.",
    "We isolated Bacillus spp. Patients were treated.".replace("spp. Patients", "spp.| Patients"),
    'He called it "benign."| She did not.',
    "The tumour grew (see below).| It shrank [data not shown.]| Nobody knew.",
    "These were stem cells.12 The others were not.".replace("12 The", "12| The"),
    "These were stem cells.12,14–16 The others were not.".replace("16 The", "16| The"),
    "These were stem cells. [3] The others were not.".replace("] The", "]| The"),
    "It is a rare disease.|The cause is unknown.",
    "It is rare (see Table 3).|We know little.",
    "Growth slowed... then stopped.| Why?| Nobody knows!| We ask.",
    "First paragraph without a stop\n\n|Second paragraph",
    "A wrapped line of text that is longer than any heading would be\nContinues here, in a Name.| Then ends.",
    "Introduction\n|The cell is small.",
    "Needed:\n|- a plate\n|- a dish",
    "Levels fell.| mRNA was stable.| p53 rose.| von Willebrand factor did not.",
    "Levels were compared.| p-values are two-sided.| n = 5 mice.",
    "The locus (J. Biol. Chem. 273, 22068) is known.| It is small.",
    "The reaction ran for 6 h.| Products were kept at 0.2 M.| Then we stopped.",
    "HeLa (ATCC. CCL-2) and bEnd.3 cells and pLKO.1 were used.| They grew.",
    "See www.example.org and Tris.Cl for more.| It is free.",
    "The variant c.38T>C (p.Leu13Pro) was found.| It is benign.",
    "The enzyme (EC 3.5.3.1) is small.| Its gene is large.",
    "In 1998. 12 patients left.".replace("1998. 12", "1998.| 12"),
    "A sentence inside (it has a period. And goes on) does not end.| This one does.",
    "An open bracket (that nobody closes.| Then the next.| And the next.",
    "Tokenised text , as here .| It has spaces ( e.g. here ) .| We cope .",
    "The score was good (HFE).| ~50% passed.",
]

CHINESE = [
    "患者发热。|无咳嗽。",
    "真的吗？|是的！|好。",
    "头痛；|恶心；|呕吐。",
    "他说：“我头痛。”|然后走了。",
    "“真的吗？”|他问。",
    "「你好。」|他说。",
    "『很好！』|医生说。",
    "（见图1。）|然后手术。",
    "他（患糖尿病。已治疗）出院了。|家属陪同。",
    "结果（P<0.05；n=30）显著。|结论可靠。",
    "血糖3.5mmol/L。|血压120/80mmHg。",
    "血压为1.2.3版。|完。",
    "等等……|他没来。",
    "不知道…|算了。",
    "“……”，他说。|没人听。",
    "第一行\n|第二行",
    "第一段。\n\n|第二段。",
    "你好.|我对象是一型糖尿病.|能治愈麽？",
    "请问?|谢谢!",
    "什么？！|真的。",
    "症状：1.发热，2.咳嗽。|无其他。",
    "使用Dr. Smith的方法。|结果相同。",
    "培养E. coli两天。|阳性。",
    '他说。|"好的。"|她走了。',
    "服用aspirin.|然后休息。",
    "这是《红楼梦。续》的内容。|完。",
    "【说明。】|请遵医嘱。",
    "好...|不好。",
    "好。。。|不好。",
    "患者诉胸闷 。| 无发热 。",
    "p < .05时显著。|否则不显著。",
    "治療完成。|患者出院。",
]


def cut(text: str, language: str | None = None) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


def expected(case: str) -> list[str]:
    return [sentence.strip() for sentence in case.split("|")]


@pytest.mark.parametrize("case", ENGLISH)
def test_english(case: str) -> None:
    assert cut(case.replace("|", "")) == expected(case)


@pytest.mark.parametrize("case", CHINESE)
def test_chinese(case: str) -> None:
    assert cut(case.replace("|", ""), "zh") == expected(case)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "en"),
        ("Cells grew.", "en"),
        ("Naïve α-cells.", "en"),
        ("患者发热。", "zh"),
        ("CT和MRI检查正常", "zh"),
    ],
)
def test_language_follows_the_share_of_chinese(text: str, language: str) -> None:
    assert guess_language(text) == language


def test_one_chinese_name_leaves_a_text_english() -> None:
    assert guess_language("The plant 黄芪 was boiled in water for two hours.") == "en"


def test_unknown_language_is_refused() -> None:
    with pytest.raises(BadSetting, match="'fr'"):
        split_sentences("Bonjour.", "fr")


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000\u2029"])
def test_white_space_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


LIKELY = st.text(alphabet=".!?…。；”\"')(][ \n\r\u2028\u3000\u00a0aAeE1２中文β-–,:•\u0301\U0001f600\udc80", max_size=60)
TEXTS = st.one_of(st.text(max_size=60), LIKELY)
LANGUAGES = st.sampled_from([None, "en", "zh"])


@given(TEXTS, LANGUAGES)
def test_spans_hold_every_character_once_and_in_order(text: str, language: str | None) -> None:
    spans = split_sentences(text, language)
    inside = "".join(text[start:end] for start, end in spans)
    assert "".join(inside.split()) == "".join(text.split())
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@given(TEXTS, LANGUAGES)
def test_spans_have_no_white_space_around_them(text: str, language: str | None) -> None:
    assert all(sentence and sentence == sentence.strip() for sentence in cut(text, language))


MILLION = 1_000_000
HOSTILE = {
    "one long line": "cell is " * (10 * MILLION // 8),
    "periods": "a" + "." * MILLION + "a",
    "open brackets": "(" * MILLION + ". A",
    "closing brackets": "a." + ")" * MILLION + "b",
    "spaces after a period": "a." + " " * MILLION + "b",
    "spaces before line ends": ("a" + " " * 1000 + "\n") * 1000,
    "reference numbers": "a." + "1," * MILLION + " A",
    "quotes": '."' * (MILLION // 4),
    "unclosed brackets": "(a. B " * 50_000,
    "initials": "A. " * 50_000,
    "quotes in brackets": '（。"）' * (MILLION // 2),
    "wide ends": "。”" * (MILLION // 4),
}


# Anything worse than linear would need hours for these and meet the timeout of the test run.
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_linear_time(name: str, language: str) -> None:
    text = HOSTILE[name]
    spans = split_sentences(text, language)
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text.rstrip())


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sentence_benchmark", ROOT / "benchmarks" / "sentences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


needs_ncbi = pytest.mark.skipif(
    not (SHARED / "data" / "ner" / "NCBI-disease-pubtator").is_dir(),
    reason="the NCBI-disease corpus is not in ../shared",
)


@needs_ncbi
@pytest.mark.parametrize(("part", "sentences"), [("train", 5424), ("devel", 923), ("test", 940)])
def test_every_gold_sentence_is_aligned(part: str, sentences: int) -> None:
    gold = benchmark().read_gold(SHARED / "data", part)
    assert (gold.aligned, gold.unaligned, gold.documents_left_out) == (sentences, 0, 0)


@needs_ncbi
@pytest.mark.parametrize("part", ["train", "devel", "test"])
def test_borders_of_real_abstracts(part: str) -> None:
    bench = benchmark()
    assert bench.score(bench.read_gold(SHARED / "data", part), split_sentences).f1 >= 0.98


def test_alignment_counts_what_it_cannot_place() -> None:
    gold = benchmark().align(["Ab.", "Cd.", "Xy.", "Ef."], {"Ab.Cd.": "Ab. Cd.", "Ef.Gh.": "Ef. Gh."})
    assert gold.documents == [("Ab. Cd.", {3})]
    assert (gold.aligned, gold.unaligned, gold.documents_left_out) == (2, 2, 1)
