"""Malformed tags are named with their lines, by the rules of the file's own dialect."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.scheme import IOB2, IOBES, Entities

from alembert.corpus.examples.tag_check import TagProblem, check_tag_files, check_tags
from alembert.corpus.readers import ReadOptions
from alembert.corpus.readers.conll import decode_tags

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
GOOD_IOB2 = "\n".join(["a\tB-x", "b\tI-x", "c\tO", ""] * 200) + "\n"
GOOD_BIOES = "\n".join(["a\tB-x", "b\tE-x", "c\tS-y", "d\tO", ""] * 200) + "\n"
GOOD_BILOU = GOOD_BIOES.replace("E-", "L-").replace("S-", "U-")
GOOD_IOB1 = "\n".join(["a\tI-x", "b\tI-x", "c\tB-x", "d\tO", ""] * 200) + "\n"


@pytest.fixture
def check(tmp_path: Path):
    """Check the lines that come after sound ones; lines are counted from the first of them."""

    def run(lines: str, good: str = GOOD_IOB2, **options: object) -> list[tuple[int, str]]:
        path = tmp_path / "tagged.tsv"
        path.write_text(good + lines, encoding="utf-8")
        found = check_tags(path, ReadOptions(**options))  # type: ignore[arg-type]
        return [(problem.line - good.count("\n"), problem.reason) for problem in found]

    return run


@pytest.mark.parametrize("good", [GOOD_IOB2, GOOD_BIOES, GOOD_BILOU, GOOD_IOB1, GOOD_IOB1.replace("B", "I")])
def test_sound_files_have_no_problems(check, good: str) -> None:
    assert check("", good) == []


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        ("a\tO\nb\tI-x\n", 2, "I-x follows O, not an open entity of its label"),
        ("a\tI-x\n", 1, "I-x follows a sentence border, not an open entity of its label"),
        ("a\tB-y\nb\tI-x\n", 2, "I-x follows B-y, not an open entity of its label"),
        ("a\tB-x\n\nb\tI-x\n", 3, "I-x follows a sentence border, not an open entity of its label"),
        ("a\tB-x\nb\tE-x\n", 2, "the prefix of E-x is not one of IOB2 (B, I)"),
        ("a\tX-x\n", 1, "the tag has the unknown prefix X; expected O, or one of B, I with a label"),
        ("a\tsecret\n", 1, "what stands for a tag is none; expected O, or one of B, I with a label"),
        ("a\n", 1, "the line has no tag in column 2"),
        ("a\t\n", 1, "the line has no tag in column 2"),
        ("\tO\n", 1, "the line has no token"),
    ],
)
def test_mistakes_in_iob2_are_named(check, lines: str, line: int, reason: str) -> None:
    assert check(lines) == [(line, reason)]


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        ("a\tB-x\nb\tO\n", 1, "B-x is followed by O, so its entity is not ended"),
        ("a\tB-x\nb\tI-x\n", 2, "I-x is followed by a sentence border, so its entity is not ended"),
        ("a\tB-x\nb\tS-x\n", 1, "B-x is followed by S-x, so its entity is not ended"),
        ("a\tE-x\n", 1, "E-x follows a sentence border, not an open entity of its label"),
        ("a\tS-x\nb\tE-x\n", 2, "E-x follows S-x, not an open entity of its label"),
        ("a\tB-x\nb\tE-y\n", 2, "E-y follows B-x, not an open entity of its label"),
        ("a\tU-x\n", 1, "the prefix of U-x is not one of BIOES (B, I, E, S, M, W)"),
    ],
)
def test_mistakes_in_bioes_are_named(check, lines: str, line: int, reason: str) -> None:
    assert check(lines, GOOD_BIOES) == [(line, reason)]


def test_bilou_has_the_same_rules(check) -> None:
    reason = "B-x is followed by O, so its entity is not ended"
    assert check("a\tB-x\nb\tO\n", GOOD_BILOU) == [(1, reason)]


def test_iob1_may_begin_with_i(check) -> None:
    assert check("a\tO\nb\tI-y\nc\tI-x\n", GOOD_IOB1) == []


def test_a_line_that_is_not_understood_does_not_blame_the_next(check) -> None:
    assert len(check("a\tB-x\nb\nc\tI-x\n")) == 1


def test_marks_are_no_problems(check) -> None:
    assert check("-DOCSTART- -X- O\n\n# a comment\na\tO\n") == []


def test_token_labels_need_a_label_on_each_line(check) -> None:
    good = "high\tJJ\nfever\tNN\n\n" * 50
    assert check("odd\n", good, token_labels=True) == [(1, "the line has 1 column(s) where most have 2")]


def test_a_line_that_cannot_be_read_is_a_problem(check) -> None:
    found = check("a" * 300 + "\tO\n", max_record=200)
    assert found == [(1, "the line is longer than max_record (200 bytes)")]


@pytest.mark.parametrize(("scheme", "prefixes", "good"), [(IOB2, "BI", GOOD_IOB2), (IOBES, "BIES", GOOD_BIOES)])
def test_tags_without_problems_are_those_that_seqeval_reads_as_we_do(tmp_path, scheme, prefixes, good) -> None:
    tags = ["O", *(f"{prefix}-{label}" for prefix in prefixes for label in "xy")]
    path = tmp_path / "tagged.tsv"

    @given(st.lists(st.sampled_from(tags), min_size=1, max_size=5))
    def run(sentence: list[str]) -> None:
        path.write_text(good + "".join(f"a\t{tag}\n" for tag in sentence), encoding="utf-8")
        strict = [(one.start, one.end, one.tag) for one in Entities([sentence], scheme).entities[0]]
        covered = sum(end - start for start, end, _ in strict)
        inside = sum(tag != "O" for tag in sentence)
        sound = strict == decode_tags(sentence) and covered == inside
        assert sound == (not list(check_tags(path, ReadOptions())))

    run()


def test_file_and_line_are_named_and_other_formats_left_out(tmp_path: Path) -> None:
    tagged, other = tmp_path / "tagged.tsv.gz", tmp_path / "other.jsonl"
    tagged.write_bytes(gzip.compress((GOOD_IOB2 + "a\tI-x\n").encode()))
    other.write_text('{"text": "fever"}\n', encoding="utf-8")
    (found,) = check_tag_files([tagged, other], ReadOptions())
    assert (found.source, found.line) == (str(tagged), 801)


def test_a_file_of_another_kind_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text("nothing here\n", encoding="utf-8")
    reason = "no column holds tags such as B-x, I-x and O in nearly every line"
    assert list(check_tags(path, ReadOptions())) == [TagProblem(str(path), 1, reason)]


def test_problems_come_while_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.tsv"
    path.write_text(GOOD_IOB2 + "a\tI-x\n\n" + GOOD_IOB2 * 20, encoding="utf-8")
    found = check_tags(path, ReadOptions())
    assert next(found).line == 801
    found.close()


def test_real_files_are_sound() -> None:
    path = SHARED / "ner" / "NCBI-disease" / "devel.tsv"
    if not path.exists():
        pytest.skip("NCBI-disease is not there")
    assert list(check_tags(path, ReadOptions())) == []
