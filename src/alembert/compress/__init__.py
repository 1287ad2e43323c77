"""Exports, which run without torch: the graph of a model, its quantisation, and its folder.

The settings of an export stand here; they load without torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from alembert.errors import TRAINING, BadSetting, require
from alembert.tasks.runtime.export_files import GRAPH_FILES, ExportFormat, ExportPrecision

require("Making an Export", *TRAINING)


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """How a checkpoint becomes an Export."""

    format: ExportFormat | None = None
    """openvino or onnx; none: the one that is faster on this machine."""
    precision: ExportPrecision = "int8"
    """int8 (quantised) or fp32."""
    portable: bool = False
    """Write int8 ONNX files with operations of the standard alone, for other programs; ONNX Runtime runs them more slowly."""
    calibration_rows: int = 300
    """Maximum sequences to calibrate the quantisation on."""
    max_score_loss: float = 0.5
    """Maximum loss of the task's score by int8, in points; beyond it, parts of the model stay in float."""
    training_hashes: bool = False
    """Copy the hashes of the training texts and entities, which `evaluate` uses to detect overlap with test data."""

    def __post_init__(self) -> None:
        if self.precision not in ("int8", "fp32"):
            raise BadSetting(f"The numbers of an Export are {self.precision!r}; expected int8 or fp32.")
        if self.format is not None and self.format not in GRAPH_FILES:
            raise BadSetting(f"The format of an Export is {self.format!r}; expected {' or '.join(GRAPH_FILES)}.")
        if self.calibration_rows < 1:
            raise BadSetting(f"There are {self.calibration_rows} rows to calibrate on; expected at least 1.")
        if not 0 <= self.max_score_loss <= 100:
            raise BadSetting(f"int8 may cost {self.max_score_loss:g} points; expected 0 to 100.")
