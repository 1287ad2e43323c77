"""Each cleaning step does its own work, is counted, and can be switched off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.clean import CleanSettings, clean, find_copyright_notices, find_headings, find_publisher_notes
from alembert.errors import BadSetting

TEXT = "TITLE: \nDiclofenac and codeine\n\nABSTRACT.METHODS:\nTwelve\u00a0people took hyper\u00adtonic salt.\n\nBODY:\nEnd."


def removed(finder, text: str) -> list[str]:
    return [text[start:end].strip() for start, end in finder(text)]


def test_headings_go_and_their_borders_stay():
    assert clean(TEXT, CleanSettings()).text == (
        "Diclofenac and codeine\n\nTwelve people took hypertonic salt.\n\nEnd."
    )


def test_what_was_done_is_counted():
    assert clean(TEXT, CleanSettings()).counts == {"normalised": 1, "headings": 3}


def test_each_step_can_be_switched_off():
    off = CleanSettings(normalise=False, headings=False, notices=False)
    assert clean(TEXT, off).text == TEXT


def test_an_entity_finds_its_way_there_and_back():
    cleaned = clean(TEXT, CleanSettings())
    start = TEXT.index("hyper")
    place = cleaned.to_clean(start, start + len("hyper\u00adtonic"))
    assert cleaned.text[slice(*place)] == "hypertonic"
    assert cleaned.to_original(*place) == (start, start + len("hyper\u00adtonic"))


def test_an_entity_in_boilerplate_becomes_empty():
    start, end = clean(TEXT, CleanSettings()).to_clean(TEXT.index("METHODS"), TEXT.index("METHODS") + 7)
    assert start == end


@pytest.mark.parametrize(
    "line",
    [
        "ABSTRACT.METHODS:",
        "ABSTRACT.RESULTS::",
        "BODY:",
        "BODY.METHODS.PART 2: A TRIAL:",
        "TITLE:",
        "ABSTRACT:",
    ],
)
def test_machine_made_headings(line):
    assert removed(find_headings, f"One.\n{line}\nTwo.") == [line]


@pytest.mark.parametrize("line", ["METHODS: We took twelve.", "The body: a view", "BODY MASS INDEX: 25"])
def test_sentences_are_no_headings(line):
    assert removed(find_headings, f"One.\n{line}\nTwo.") == []


@pytest.mark.parametrize(
    "notice",
    [
        "© 2020 Elsevier Ltd. All rights reserved.",
        "Copyright © 2015 The Authors Drug Safety Published by John Wiley & Sons, Ltd.",
        "Copyright © 2011, Wiley.",
        "(PsycInfo Database Record (c) 2021 APA, all rights reserved).",
        "This article is protected by copyright. All rights reserved.",
        "© 2000 Cancer Research Campaign",
        "© 2020 by the authors.",
    ],
)
@pytest.mark.parametrize("before", ["", "The pain was less. "])
def test_copyright_notices(notice, before):
    assert removed(find_copyright_notices, f"One.\n{before}{notice}\nTwo.") == [notice]


@pytest.mark.parametrize(
    "text",
    [
        "They used Epocrates© 2000 and others.",
        "(a) men; (b) women; (c) 2000 patients were seen.",
        "We saw all. (c) 2000 patients were seen.",
        "The study was on copyright law.",
    ],
)
def test_sentences_are_no_notices(text):
    assert removed(find_copyright_notices, text) == []


def test_publisher_notes():
    note = "The pre-publication history for this paper can be accessed here:"
    assert removed(find_publisher_notes, f"One.\n{note}\nTwo.") == [note]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Too short", "too short"),
        ("Immunohistochemistry-of-the-retina", None),
        ("", "too short"),
        ("Die Patienten wurden mit Aspirin behandelt, und der Schmerz war weg.", "wrong language"),
        ("The patients were treated with aspirin.", None),
        ("糖尿病患者的治疗方法和药物选择以及护理要点", "wrong language"),
    ],
)
def test_reasons_to_drop(text, reason):
    assert clean(text, CleanSettings(languages=("en",))).drop_reason == reason


@pytest.mark.parametrize(
    "question",
    [
        "乳腺癌早期有什么症状呢？",
        "孩子发烧应该吃什么药",
        "CT检查正常吗",
        "IL-6偏高怎么办",
        "痛风怎么治",
    ],
)
def test_short_chinese_questions_are_kept(question):
    assert clean(question, CleanSettings()).drop_reason is None


@pytest.mark.parametrize("text", ["糖尿病", "HIV阳性", "IL-6", "Fever, 发热, in a b"])
def test_what_says_little_is_too_short_in_any_script(text):
    assert clean(text, CleanSettings()).drop_reason == "too short"


def test_an_annotated_text_is_never_too_short_but_may_be_in_the_wrong_language():
    assert clean("Gout.", CleanSettings(), annotated=True).drop_reason is None
    assert clean("\u200b \n", CleanSettings(), annotated=True).drop_reason == "too short"
    only = CleanSettings(languages=("en",))
    assert clean("糖尿病患者", only, annotated=True).drop_reason == "wrong language"


def test_any_language_is_kept_by_default():
    assert clean("糖尿病患者的治疗方法和药物选择以及护理要点", CleanSettings()).drop_reason is None


@pytest.mark.parametrize(
    "wrong", [{"form": "NFD"}, {"similarity": 0.1}, {"languages": ("english",)}, {"min_words": -1}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(BadSetting, match=next(iter(wrong))):
        CleanSettings(**wrong)


LINES = st.sampled_from(["BODY.X:", "One\u00ad two.", "© 2020 A. All rights reserved.", "a  b", "TITLE: x", ""])


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_cleaning_twice_changes_nothing_more(text):
    once = clean(text, CleanSettings()).text
    assert clean(once, CleanSettings()).text == once


@given(st.text(max_size=60))
def test_the_whole_text_is_carried_whole(text):
    cleaned = clean(text, CleanSettings())
    assert cleaned.to_clean(0, len(text)) == (0, len(cleaned.text))
