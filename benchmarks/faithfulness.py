"""Whether explanations of a tagger are faithful: on sentences of real data, against random orders of the words.

    python benchmarks/faithfulness.py --model MODEL --data test.tsv [--sentences 200] [--quick]

One entity is explained in each sentence: of those that the model finds, the one that it is least sure of. A Checkpoint is
explained by gradients and by occlusion, an Export by occlusion alone. Nothing is timed, so a busy machine changes no number.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from harness import parser


def sentences_with_entities(data: Path, count: int) -> list[str]:
    """Read texts that have an entity, and choose some of them, the same in every run."""
    import alembert

    texts = [document.text for document in alembert.read(data) if document.entities]
    random.Random(1).shuffle(texts)
    return texts[:count]


def explain_all(model: Any, texts: list[str], method: str) -> list[Any]:
    """Explain an entity of each text; none where the model finds no entity."""
    import alembert

    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(model.explain(text, method=method))
        except alembert.UserError:
            found.append(None)
        print(f"\r{method}: {number} of {len(texts)}", end="", flush=True)
    print()
    return found


def share(judged: list[bool]) -> float:
    return round(sum(judged) / max(1, len(judged)), 4)


def ratios_of(found: list[Any]) -> dict[str, float]:
    """How often explanations by one method are better than chance, and than attention."""
    faithful = [each.faithfulness for each in found]
    ratios = {
        "comprehensiveness_above_random": share([f.comprehensiveness > f.random_comprehensiveness for f in faithful]),
        "sufficiency_below_random": share([f.sufficiency < f.random_sufficiency for f in faithful]),
        "better_than_random": share([f.better_than_random for f in faithful]),
    }
    if faithful and faithful[0].attention_comprehensiveness is not None:
        ratios["comprehensiveness_above_attention"] = share(
            [f.comprehensiveness > f.attention_comprehensiveness for f in faithful]
        )
    if found and found[0].residue is not None:
        ratios["complete_within_1_percent"] = share([each.residue <= 0.01 for each in found])
    return ratios


def top_words(found: list[Any]) -> list[tuple[int, int]]:
    best = [each.strongest_words(1)[0] for each in found]
    return [(word.start, word.end) for word in best]


def main() -> None:
    import alembert

    arguments = parser(__doc__, quick="ten sentences")
    arguments.add_argument("--model", required=True, help="a tagger: a folder, or the name of a shipped model")
    arguments.add_argument("--data", type=Path, required=True, help="labelled sentences of any format")
    arguments.add_argument("--sentences", type=int, default=200)
    options = arguments.parse_args()
    model = alembert.load(options.model)
    texts = sentences_with_entities(options.data, 10 if options.quick else options.sentences)
    methods = ["occlusion"]
    try:
        model.explain("Fever.", method="gradients", span=(0, 5))
        methods.append("gradients")
    except alembert.UserError as problem:
        print(f"by occlusion alone: {problem}")
    found = {method: explain_all(model, texts, method) for method in methods}
    kept = [number for number, each in enumerate(found["occlusion"]) if each is not None]
    chosen = {method: [each[number] for number in kept] for method, each in found.items()}
    ratios = {f"{method}_{name}": value for method in methods for name, value in ratios_of(chosen[method]).items()}
    steps = sorted(each.steps for each in chosen.get("gradients", ()))
    if "gradients" in methods:
        pairs = zip(top_words(chosen["occlusion"]), top_words(chosen["gradients"]), strict=True)
        ratios["same_top_word"] = share([one == other for one, other in pairs])
    for name, value in ratios.items():
        print(f"{name:50} {value:.1%}")
    facts = {"sentences": len(texts), "explained": len(kept), "median_steps": steps[len(steps) // 2] if steps else None}
    print(json.dumps({"ratios": ratios, **facts, "model": options.model, "data": options.data.name}))


if __name__ == "__main__":
    main()
