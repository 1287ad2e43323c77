"""Real-token throughput of a packed forward pass against Hugging Face transformers, in one run.

    python benchmarks/encode.py [--quick] [--model FOLDER] [--text train.tsv]

Both sides encode the same sentences with the same weights in float32 on the same threads: transformers in batches of
32 padded as they come, and in batches of 32 sorted by length; alembert packed by a token budget, one stream of batches
per core. Needs `transformers` and a 6x384 checkpoint.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from harness import SHARED, Comparison, chunks, compare, need_peers, parser, report, timed
from peaks import products_limit
from rounds import Rounds, take_rounds

import alembert
from alembert import hardware
from alembert.train.progress import count_multiply_adds

PEER_BATCH = 32


def main() -> None:
    arguments = _arguments()
    need_peers("transformers")
    checkpoint = alembert.open(arguments.model)

    import torch
    from transformers import AutoModel

    from alembert.infer.engine_torch import TorchEngine

    peer = AutoModel.from_pretrained(arguments.model).eval()
    texts = (sentences(arguments.text) if arguments.text.is_file() else sample_sentences())[
        : 500 if arguments.quick else 2500
    ]
    ids = [encoding.ids for encoding in checkpoint.tokenizer.encode_batch(texts, offsets=False)]
    ids = [list(row) for row in ids if len(row) <= checkpoint.blueprint.config.max_position_embeddings]
    engine = TorchEngine(checkpoint)

    def ours() -> None:
        for _ in engine.hidden_states(ids):
            pass

    def theirs(order: list[int]) -> None:
        for rows in chunks(order, PEER_BATCH):
            length = max(len(ids[row]) for row in rows)
            tokens = torch.tensor([ids[row] + [0] * (length - len(ids[row])) for row in rows])
            peer(input_ids=tokens, attention_mask=(tokens != 0).long())

    natural = list(range(len(ids)))
    by_length = sorted(natural, key=lambda row: len(ids[row]))
    contenders: dict[str, Callable[[], None]] = {
        "alembert": ours,
        "transformers": lambda: theirs(natural),
        "transformers_sorted": lambda: theirs(by_length),
    }
    peaks: list[float] = []
    with torch.inference_mode():
        check_equal(engine, peer, ids[:8])
        rounds = take_rounds(
            {name: timed(run) for name, run in contenders.items()},
            seconds=45 if arguments.quick else 240,
            after=lambda _: peaks.append(hardware.measure_matmul_peak()),
        )
    tokens = sum(map(len, ids))
    print(f"{len(ids):,} sentences, {tokens:,} tokens, mean {tokens / len(ids):.1f}, longest {max(map(len, ids))}")
    report(compared(checkpoint, ids, rounds, max(peaks)), [rounds], sentences=len(ids), tokens=tokens)


def compared(checkpoint, ids: list[list[int]], rounds: Rounds, peak: float) -> dict[str, Comparison]:
    """Compare real tokens a second with each peer, and the products for them with the peak."""
    work = count_multiply_adds(checkpoint.blueprint.config, [len(row) for row in ids], predictions=0)
    limit = products_limit(2 * work, rounds.cost("alembert"), peak, "float32")
    tokens = sum(map(len, ids))
    peers = [side for side in rounds.costs if side != "alembert"]
    return {peer: compare(rounds, "alembert", peer, unit="tokens/s", work=tokens, limit=limit) for peer in peers}


def check_equal(engine, peer, rows: list[list[int]]) -> None:
    """Speed means nothing if the numbers differ."""
    import torch

    for number, states in engine.hidden_states(rows):
        theirs = peer(torch.tensor([rows[number]])).last_hidden_state[0]
        torch.testing.assert_close(states, theirs, atol=1e-5, rtol=0)


def sentences(path: Path) -> list[str]:
    """The sentences of a CoNLL file."""
    blocks = path.read_text(encoding="utf8").strip().split("\n\n")
    return [" ".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks]


def sample_sentences() -> list[str]:
    """Sentences of the embedded sample, many times over: for a machine without the real data."""
    from alembert import sample

    print("note: no CoNLL file; the embedded sample is used, and the ratios are not those of real data")
    return [part for passage in sample.load_passages("en") for part in passage.text.split(". ")] * 7


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="500 sentences, fewer rounds", model="a 6x384 checkpoint")
    options.add_argument("--text", type=Path, default=SHARED / "ner/NCBI-disease/train.tsv", help="a CoNLL file")
    return options.parse_args()


if __name__ == "__main__":
    main()
