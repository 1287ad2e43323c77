"""Settings of an export, which load without torch."""

from __future__ import annotations

from dataclasses import dataclass

from alembert.errors import BadSetting
from alembert.tasks.runtime.export_files import GRAPH_FILES, ExportFormat, ExportPrecision


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """How a checkpoint becomes an Export."""

    format: ExportFormat | None = None
    """openvino, or onnx, which other programs read too; none: the one whose library is faster on this machine."""
    precision: ExportPrecision = "int8"
    calibration_rows: int = 300
    """Maximum sequences of text to calibrate the quantisation on."""
    max_score_loss: float = 0.5
    """Points of the task's score that int8 may cost before parts of the model go back to float."""
    training_hashes: bool = False
    """Take along the checkpoint's hashes of the texts and entities it was trained on, by which overlaps are found."""

    def __post_init__(self) -> None:
        if self.precision not in ("int8", "fp32"):
            raise BadSetting(f"The numbers of an Export are {self.precision!r}; expected int8 or fp32.")
        if self.format is not None and self.format not in GRAPH_FILES:
            raise BadSetting(f"The format of an Export is {self.format!r}; expected {' or '.join(GRAPH_FILES)}.")
        if self.calibration_rows < 1:
            raise BadSetting(f"There are {self.calibration_rows} rows to calibrate on; expected at least 1.")
        if not 0 <= self.max_score_loss <= 100:
            raise BadSetting(f"int8 may cost {self.max_score_loss:g} points; expected 0 to 100.")
