"""Which engine runs a folder: OpenVINO or ONNX Runtime an Export, torch a Checkpoint. The folder alone decides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from alembert.errors import BadSetting
from alembert.extras import TRAINING, is_installed, require
from alembert.tasks.runtime.export_files import is_export

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine
    from alembert.infer.several import SeveralEngine


def open_engine(folder: Path, device: str = "cpu") -> SeveralEngine:
    """Open a fine-tuned model with the engine that it is made for; `device` is for torch."""
    if is_export(folder):
        from alembert.infer.engine_export import ExportEngine

        return ExportEngine.open(folder)
    return open_in_torch(folder, device)


def open_in_torch(folder: str | Path, device: str = "cpu") -> TorchEngine:
    """Open a checkpoint in torch; one sentence says what to do if torch is not there."""
    require(
        f"The checkpoint {folder}",
        *TRAINING,
        otherwise="An Export of it needs none: make one where torch is installed (alembert export).",
    )
    if is_export(Path(folder)):
        raise BadSetting(
            f"{folder} is an Export, which answers its task alone. Use the Checkpoint that it was made of, which runs in torch."
        )
    from alembert.infer.engine_torch import TorchEngine

    return TorchEngine.open(folder, device)


def device_for(folders: Iterable[Path], wanted: str) -> str:
    """Choose the device of models: what was wanted of torch, the CPU if all are Exports, for which torch is not loaded.

    Without torch it is the CPU too: what needs torch is refused when it is opened.
    """
    if not is_installed("torch") or all(is_export(folder) for folder in folders):
        return "cpu"
    from alembert.hardware.torch_settings import resolve_device

    return resolve_device(wanted)
