"""Labels of points: inside the frame, none over another, each nearest to its own point."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from alembert.inspect.scatter import LINE_HEIGHT, Box, place_labels, text_width

FRAME = Box(60, 40, 620, 350)
places = st.tuples(st.floats(90, 590), st.floats(70, 320))


def placed(points: list[tuple[float, float]], width: float) -> list[Box]:
    bars = [Box(x - 2, y - 20, x + 2, y + 20) for x, y in points]
    return place_labels(points, [12.0] * len(points), [width] * len(points), bars, FRAME)


@settings(deadline=None, max_examples=25)
@given(st.lists(places, min_size=1, max_size=8), st.floats(20, 190))
def test_labels_are_apart_and_inside(points: list[tuple[float, float]], width: float) -> None:
    boxes = placed(points, width)
    covered = [one.overlap(two) for n, one in enumerate(boxes) for two in boxes[:n]]
    assert max(covered, default=0.0) == 0.0
    assert all(box.overlap(FRAME) > 0.999 * box.area for box in boxes)


@settings(deadline=None, max_examples=25)
@given(places, st.integers(2, 8))
def test_models_in_one_place_have_labels_apart(point: tuple[float, float], count: int) -> None:
    boxes = placed([point] * count, 150)
    assert len(set(boxes)) == count
    assert not any(one.overlap(two) for n, one in enumerate(boxes) for two in boxes[:n])


def test_the_label_of_two_neighbours_is_on_the_side_of_its_own() -> None:
    left, right = placed([(300, 200), (305, 201)], 120)
    assert left.right < 300
    assert right.left > 305


def test_a_lone_label_is_beside_its_point() -> None:
    (box,) = placed([(300, 200)], 120)
    assert (box.left, box.top, box.bottom) == (317, 200 - LINE_HEIGHT, 200 + LINE_HEIGHT)
    assert math.dist(box.nearest((300, 200)), (300, 200)) == 17


def test_chinese_is_wider() -> None:
    assert text_width("学生") > 1.5 * text_width("ab")
