"""The runtime install: what runs without any extra, and what says which extra it needs."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.errors import EXTRAS, MissingExtra, require
from alembert.files import checkpoint as checkpoints
from small_checkpoints import fine_tuned

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# As if no extra were installed: importing a module that is None fails, and looking for it finds nothing.
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({sorted({*EXTRAS, "sklearn", "scipy", "transformers"} - {"huggingface_hub"})}))
from alembert.cli import run
sys.exit(run(sys.argv[1:]))
"""
TEXT = "Fever after aspirin."


def package(requirement: str) -> str:
    return re.split(r"[<>=\[; ]", requirement)[0].replace("-", "_")


RUNTIME = {package(each) for each in PROJECT["dependencies"]}


def bare(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that has the runtime alone."""
    command = [sys.executable, "-c", BARE, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tagger as a checkpoint and as an Export of either format, examples, and documents."""
    place = tmp_path_factory.mktemp("bare")
    fine_tuned("tag, crf", place / "checkpoint", place / "examples.jsonl")
    fine_tuned("compare", place / "sentences", place / "sentences.jsonl")
    for name, form in {"onnx": "onnx", "openvino": "openvino"}.items():
        settings = ExportSettings(format=form, precision="fp32")  # type: ignore[arg-type]
        export(checkpoints.open(place / "checkpoint"), place / name, settings)
    vectors = ExportSettings(format="onnx", precision="fp32")
    export(checkpoints.open(place / "sentences"), place / "vectors", vectors)
    (place / "notes.jsonl").write_text(json.dumps({"id": "1", "text": TEXT}) + "\n")
    (place / "notes.txt").write_text(TEXT)
    return place


def third_party(path: Path) -> set[str]:
    """Name the packages that a file imports and that neither Python nor alembert has."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"alembert"}


def test_every_package_that_is_imported_is_a_dependency_or_has_an_extra() -> None:
    imported: set[str] = set().union(*map(third_party, (ROOT / "src").rglob("*.py")))
    assert imported - {"typing_extensions"} <= RUNTIME | set(EXTRAS)


@pytest.mark.parametrize(("name", "extra"), EXTRAS.items())
def test_an_extra_brings_the_package_that_it_is_named_for(name: str, extra: str) -> None:
    assert name in map(package, PROJECT["optional-dependencies"][extra])
    assert name not in RUNTIME


def test_all_has_every_other_extra() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"all"}
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.search(r"\[(.*)\]", everything)[1].split(",")) == extras  # type: ignore[index]


def test_a_sentence_says_how_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra) as caught:
        require("Training", "json", "torch", otherwise="Rest instead.")
    assert str(caught.value) == (
        "Training needs the package `torch`, which is not installed. "
        "Install it with: pip install 'alembert[train]'. Rest instead."
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("finetune", "--help"),
        ("predict", "onnx", TEXT),
        ("evaluate", "onnx", "examples.jsonl"),
        ("inspect", "errors", "onnx", "examples.jsonl"),
        ("inspect", "tokens", "onnx", TEXT),
        ("inspect", "why", "onnx", TEXT, "--span", "0:3"),
        ("vocab", "report", "onnx", "notes.jsonl"),
        ("vocab", "learn", "notes.txt", "--size", 50, "--out", "learnt"),
        ("embed", "encode", "vectors", "notes.jsonl", "--out", "encoded"),
        *(
            ("annotate", "onnx", "notes.jsonl", "--format", name, "--out", f"annotated-{name}")
            for name in ("jsonl", "pubtator", "brat", "bioc", "bioc-json")
        ),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_the_runtime_does_it_without_any_extra(arguments: tuple[Any, ...], work: Path) -> None:
    done = bare(*arguments, cwd=work)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("train", ("finetune", "--task", "tag", "--model", "checkpoint", "--train", "examples.jsonl")),
        ("train", ("pretrain", "notes.jsonl", "--model", "checkpoint")),
        ("train", ("distill", "checkpoint", "--student", "1x16", "--train", "examples.jsonl")),
        ("train", ("augment", "checkpoint", "--train", "examples.jsonl")),
        ("train", ("export", "checkpoint", "--fp32")),
        ("train", ("convert", "checkpoint")),
        ("train", ("vocab", "extend", "checkpoint", "notes.txt", "--terms", 1)),
        ("train", ("demo",)),
        ("train", ("annotate", "checkpoint", "notes.jsonl")),
        ("train", ("embed", "encode", "checkpoint", "notes.jsonl", "--pooling", "mean")),
        ("parquet", ("corpus", "build", "notes.jsonl")),
        ("parquet", ("annotate", "onnx", "notes.jsonl", "--format", "parquet")),
        ("parquet", ("annotate", "onnx", "s3://bucket/notes.jsonl")),
        ("openvino", ("annotate", "openvino", "notes.jsonl")),
        ("serve", ("serve", "onnx")),
        ("ray", ("annotate", "onnx", "notes.jsonl", "--on", "ray")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value[:2])),
)
def test_what_needs_an_extra_says_so_before_anything_is_done(
    extra: str, arguments: tuple[Any, ...], work: Path
) -> None:
    out = () if extra == "serve" else ("--out", work / "new" / "result")
    done = bare(*arguments, *out, cwd=work)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert f"pip install 'alembert[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (work / "new").exists()


@pytest.mark.parametrize("command", ["predict", "fill", "generate", "score"])
def test_a_checkpoint_says_that_an_export_needs_no_torch(command: str, work: Path) -> None:
    done = bare(command, "checkpoint", TEXT, cwd=work)
    assert done.returncode == 2
    assert "An Export of it needs none" in done.stderr
    assert "pip install 'alembert[train]'" in done.stderr


@pytest.mark.parametrize("name", ["notes.jsonl.zst", "notes.parquet"])
def test_what_pyarrow_reads_names_its_extra(name: str, work: Path) -> None:
    content = {"notes.jsonl.zst": b"\x28\xb5\x2f\xfd" + bytes(20), "notes.parquet": b"PAR1" + bytes(20)}
    (work / name).write_bytes(content[name])
    done = bare("annotate", "onnx", name, "--out", "new", cwd=work)
    assert done.returncode == 2
    assert "pip install 'alembert[parquet]'" in done.stderr
    assert list(work.glob("*new*")) == []


def test_python_does_it_without_any_extra(work: Path) -> None:
    script = (
        BARE.split("from alembert.cli", maxsplit=1)[0]
        + f"""
import alembert
model = alembert.load("onnx")
alembert.write(model.pipe(alembert.read("notes.jsonl")), "piped.jsonl.gz")
alembert.annotate("onnx", "notes.jsonl", out="annotated", progress=False)
alembert.evaluate("onnx", "examples.jsonl", rounds=10, progress=False)
assert alembert.load("vectors").encode([{TEXT!r}]).shape[0] == 1
assert model.predict({TEXT!r}).text == {TEXT!r}
try:
    alembert.load("checkpoint")
except alembert.UserError as problem:
    print(problem)
"""
    )
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", script]
    result = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert "alembert[train]" in result.stdout
