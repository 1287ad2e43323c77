"""Admission: how work is counted, how its rate is measured, and what is refused."""

import pytest

from alembert.serve.admission import Admission, DrainRate, Overloaded, estimate_tokens


def test_tokens_are_estimated_from_bytes_whatever_the_script() -> None:
    assert estimate_tokens("word " * 100) == pytest.approx(125, abs=5)
    assert estimate_tokens("咳嗽" * 100) == pytest.approx(150, abs=5)
    assert estimate_tokens({"question": "a" * 40, "choices": ["b" * 40]}) == 2 + 20 + 1
    assert estimate_tokens("\ud800") > 0


def test_the_rate_is_that_of_full_batches_while_they_are_computed() -> None:
    rate = DrainRate(batch_tokens=1000, tokens_per_second=1e-9)
    rate.begin(10.0)
    rate.finish(1000, 11.0)
    rate.begin(50.0)  # nothing was computed meanwhile
    rate.finish(10, 59.0)  # a lone short text
    rate.begin(60.0)
    rate.finish(1000, 61.0)
    assert rate.tokens_per_second == pytest.approx(2000 / 3)  # the first guess counts as a second


def test_batches_that_overlap_share_their_time() -> None:
    rate = DrainRate(batch_tokens=100)
    rate.reset(100)
    rate.begin(0.0)
    rate.begin(0.0)
    rate.finish(100, 0.5)
    rate.finish(100, 1.0)
    assert rate.tokens_per_second == pytest.approx(300 / 2)


def test_small_batches_count_if_others_are_under_way() -> None:
    rate = DrainRate(batch_tokens=1000)
    rate.reset(1e-9)
    rate.begin(0.0)
    rate.begin(0.0)
    rate.finish(10, 1.0)
    assert rate.tokens_per_second == pytest.approx(11 / 2)


def test_the_rate_forgets_what_is_long_ago() -> None:
    rate = DrainRate(batch_tokens=100, tokens_per_second=1000)
    for second in range(200):
        rate.begin(second)
        rate.finish(100, second + 1)
    assert rate.tokens_per_second == pytest.approx(100, rel=0.01)


def test_what_cannot_be_done_in_time_is_refused_with_the_time_until_there_is_room() -> None:
    admission = Admission(DrainRate(100, tokens_per_second=100), max_seconds=10)
    admission.admit(900)
    with pytest.raises(Overloaded) as caught:
        admission.admit(400)
    assert caught.value.retry_after == 3  # 1,300 tokens at 100 a second, of which 10 s are allowed
    admission.admit(100)
    admission.release(1000)
    assert admission.tokens == 0


def test_an_idle_service_takes_a_request_of_any_allowed_size() -> None:
    admission = Admission(DrainRate(100, tokens_per_second=1), max_seconds=1)
    admission.admit(5000)
    with pytest.raises(Overloaded):
        admission.admit(1)


def test_a_body_as_large_as_what_was_refused_is_not_read_until_something_is_done() -> None:
    admission = Admission(DrainRate(100, tokens_per_second=1), max_seconds=10)
    assert admission.find_overload(10**9) is None
    admission.admit(9)
    with pytest.raises(Overloaded):
        admission.admit(3)
    assert admission.find_overload(4 * 2) is None  # there may be room for less
    assert admission.find_overload(4 * 3) is not None
    admission.release(1)
    assert admission.find_overload(4 * 3) is None
