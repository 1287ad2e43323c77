"""The parts of the page that touch no element: the queue, the estimate of F1, comparison, and blocks of long texts."""

from collections.abc import Callable
from typing import Any

import pytest

from alembert import Document, Entity
from benchmark_modules import load_benchmark

Run = Callable[..., Any]


@pytest.fixture
def run(empty_page: Any) -> Run:
    """Call a function of a file of the page."""

    def call(file: str, name: str, *arguments: Any) -> Any:
        script = "async ([file, name, given]) => (await import(`/page/${file}.js`))[name](...given)"
        return empty_page.evaluate(script, [file, name, list(arguments)])

    return call


def test_f1_is_that_of_all_entities_together(run: Run) -> None:
    counts = [
        {"both": 8, "proposed": 10, "right": 9},
        {"both": 2, "proposed": 2, "right": 5},
        {"both": 0, "proposed": 0, "right": 0},
    ]
    estimate = run("queue", "estimateF1", counts)
    assert estimate["f1"] == pytest.approx(2 * 10 / (12 + 14))
    assert 0 < estimate["low"] < estimate["f1"] < estimate["high"] < 1


def test_no_error_in_a_few_documents_is_no_proof(run: Run) -> None:
    estimate = run("queue", "estimateF1", [{"both": 3, "proposed": 3, "right": 3}] * 5)
    assert estimate["high"] == 1
    assert 0.5 < estimate["low"] < 0.8


def test_too_few_documents_give_no_estimate(run: Run) -> None:
    assert run("queue", "estimateF1", [{"both": 3, "proposed": 3, "right": 3}] * 2) is None
    assert run("queue", "estimateF1", [{"both": 0, "proposed": 0, "right": 0}] * 9) is None


COVERED = """async () => {
    const { estimateF1 } = await import("/page/queue.js");
    let seed = 7;
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    let covered = 0;
    for (let round = 0; round < 1000; round += 1) {
        const counts = Array.from({ length: 15 }, () => {
            const quality = random() < 0.3 ? 0.5 : 0.9; // entities of one document are right or wrong together
            const both = Array.from({ length: 1 + Math.floor(random() * 9) }, () => random() < quality);
            const right = both.filter(Boolean).length;
            return { both: right, proposed: both.length, right: both.length };
        });
        const { low, high } = estimateF1(counts);
        covered += low <= 0.78 && 0.78 <= high; // 0.3 * 0.5 + 0.7 * 0.9
    }
    return covered / 1000;
}"""


def test_the_interval_covers_the_truth_as_often_as_it_says(empty_page: Any) -> None:
    assert 0.93 <= empty_page.evaluate(COVERED) <= 0.99


@pytest.mark.parametrize("scores", [[], [0.5], [1.0, 1.0], [0.9, 0.2, 0.55], [0.5] * 7 + [0.999]])
def test_the_simulation_of_labelling_has_the_same_usefulness(scores: list[float], run: Run) -> None:
    entities = tuple(
        Entity(str(at), "x", ((at, at + 1),), attributes=(("score", str(score)),)) for at, score in enumerate(scores)
    )
    simulated = load_benchmark("labelling").usefulness(Document("1", "text " * 9, entities=entities))
    assert run("queue", "usefulness", {"proposed": [{"score": score} for score in scores]}) == pytest.approx(simulated)


def test_files_are_cut_into_texts(run: Run) -> None:
    lines = '"一"\n{"id": "b", "text": "😀"}\n\n{"text": 3}\nnull\n'
    read = run("queue", "readTexts", "a.jsonl", lines, False)
    assert [(each["name"], each["text"]) for each in read["texts"]] == [("a.jsonl 1", "一"), ("b", "😀")]
    assert read["bad"] == 2
    paragraphs = run("queue", "readTexts", "a.txt", "one\ntwo\n\nthree\n", True)
    assert [each["text"] for each in paragraphs["texts"]] == ["one\ntwo", "three"]
    whole = run("queue", "readTexts", "a.txt", "one\n\ntwo", False)
    assert [each["text"] for each in whole["texts"]] == ["one\n\ntwo"]


def test_models_are_compared_by_span_and_type(run: Run) -> None:
    def entity(start: int, label: str) -> dict[str, Any]:
        return {"start": start, "end": start + 2, "label": label, "score": 0.5}

    compared = run(
        "compare", "compareEntities", [entity(0, "x"), entity(5, "x"), entity(9, "x")], [entity(0, "x"), entity(5, "y")]
    )
    sides = [(each["start"], each["label"], each["side"], each.get("other")) for each in compared]
    assert sides == [(0, "x", "both", None), (5, "x", "a", "y"), (5, "y", "b", "x"), (9, "x", "a", None)]


@pytest.mark.parametrize("text", ["word " * 4000, "line\n" * 4000, "字" * 9000], ids=["words", "lines", "signs"])
def test_blocks_are_the_whole_text_and_cut_no_entity(text: str, run: Run) -> None:
    entities = [{"start": start, "end": start + 30} for start in range(0, len(text) - 30, 97)]
    blocks = run("blocks", "cutBlocks", list(text), entities)
    borders = [each["start"] for each in blocks] + [len(text)]
    assert [each["end"] for each in blocks] == borders[1:]
    assert not [at for at in borders for each in entities if each["start"] < at < each["end"]]
    assert max(each["end"] - each["start"] for each in blocks) <= 4100


@pytest.mark.parametrize(
    ("after", "moved"),
    [
        ("the new drug 😀 works", [8, 14]),
        ("a drug 😀 works", [2, 8]),
        ("the drug 😀 fails", [4, 10]),
        ("the drugs 😀 works", [4, 11]),
        ("the  works", None),
    ],
)
def test_a_span_is_found_again_in_an_edited_text(after: str, moved: list[int] | None, run: Run) -> None:
    assert run("why", "moveSpan", "the drug 😀 works", after, [4, 10]) == moved


@pytest.mark.parametrize(
    ("scores", "leans"),
    [((1, 3, 2, 1), True), ((1, 1, 2, 3), True), ((3, 1, 2, 1), False), ((1, 2, 3, 2), False), ((1, 1, 2, -3), False)],
)
def test_a_word_beside_the_answer_is_called_so(scores: tuple[float, ...], leans: bool, run: Run) -> None:
    words = [{"start": 3 * at, "end": 3 * at + 2, "score": score} for at, score in enumerate(scores)]
    assert run("why", "leansOnBorder", {"span": [6, 8], "words": words}) is leans
