"""Virtual environments with some packages and what these need, linked from the one that runs: no registry is asked.

A link stands for each file or folder that a distribution has put into site-packages, so an environment is made in a
moment and has the same bytes; what its packages do not require is not there.
"""

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
MEGABYTE = 1_000_000


def required(names: Iterable[str]) -> dict[str, Distribution]:
    """Find distributions and all that they require without extras."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        if (name := canonicalize_name(waiting.pop())) in found:
            continue
        found[name] = distribution(name)
        waiting += runtime_needs(found[name])
    return found


def runtime_needs(wanting: Distribution) -> list[str]:
    """Name what a distribution requires here without extras."""
    needs = map(Requirement, wanting.requires or ())
    return [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]


def megabytes(distributions: Iterable[Distribution]) -> float:
    """Add up the files of distributions, compiled modules included."""
    files = {file.locate() for each in distributions for file in each.files or ()}
    return sum(path.stat().st_size for path in map(Path, files) if path.is_file()) / MEGABYTE


def make_environment(folder: Path, distributions: Iterable[Distribution]) -> Path:
    """Make a virtual environment of distributions; give its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for each in distributions:
        tops = {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(each.locate_file(top))))
    return folder / "bin" / "python"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this repository; without hatchling here, pip fetches it."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    try:
        distribution("hatchling")
        command.append("--no-build-isolation")
    except ModuleNotFoundError:
        pass
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_wheel(python: Path, wheel: Path) -> None:
    """Install a wheel, and nothing else, into an environment."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, text=True)
