"""A threshold that is looked up reaches the precision that was asked for, on the very answers it was measured on."""

import json

import numpy as np
import pytest

from alembert.tasks.metrics.calibration import Confidences, build_curve_table, find_threshold


@pytest.mark.parametrize(
    ("sure", "right"),
    [
        pytest.param([1 - 1e-7, 1 - 2e-7, 0.9], [True, True, False], id="rounding up withholds everything"),
        pytest.param([1 - 1e-7, 1 - 2e-7, 1 - 3e-7], [True, True, False], id="closer than any rounding"),
        pytest.param([0.5000004, 0.5000001], [True, False], id="rounding down lets a wrong one through"),
    ],
)
def test_a_threshold_survives_the_folder_of_the_model(sure: list[float], right: list[bool]) -> None:
    sure_N, right_N = np.array(sure), np.array(right)
    kept = json.loads(json.dumps(build_curve_table(Confidences("labels", sure_N, right_N))))
    threshold = find_threshold(1.0, {"confidence": kept}, "work/topics")
    np.testing.assert_array_equal(sure_N >= threshold, right_N)
