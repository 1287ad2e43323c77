"""Which benchmarks there are, and the ratios of theirs that docs/benchmarks.md shows, with their goals.

Goals hold for the whole form on a quiet machine with VNNI. A ratio that is not named here is kept in the records, and
left out of the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A line of the page."""

    ratio: str
    """The name under which the benchmark prints it."""
    what: str
    goal: float | None = None


@dataclass(frozen=True)
class Benchmark:
    """A script, perhaps with arguments that make a variant of it."""

    script: str
    rows: Sequence[Row]
    arguments: Sequence[str] = ()
    needs_bfloat16: bool = False
    """Whether it is run only where the product trains in bfloat16 by itself."""

    @property
    def name(self) -> str:
        return " ".join([self.script, *(each for each in self.arguments if not each.startswith("-"))])


BFLOAT16 = ("--precision", "bfloat16")
CATALOGUE = (
    Benchmark(
        "pretrain",
        (
            Row("full_rows", "masked-LM training, rows of 128, against the Trainer, float32", 2.7),
            Row("natural_lengths", "the same on texts of natural length", 12),
            Row("peak_share", "share of the peak that training on full rows reaches", 0.7),
        ),
    ),
    Benchmark(
        "pretrain",
        (
            Row("full_rows", "masked-LM training, rows of 128, both sides in bfloat16", 2.7),
            Row("natural_lengths", "the same on texts of natural length", 12),
        ),
        BFLOAT16,
        needs_bfloat16=True,
    ),
    Benchmark("finetune", (Row("trainer", "fine-tuning a tagger, against the Trainer, float32", 2.8),)),
    Benchmark(
        "finetune",
        (Row("trainer", "fine-tuning a tagger, both sides in bfloat16", 2.8),),
        BFLOAT16,
        needs_bfloat16=True,
    ),
    Benchmark(
        "annotate",
        (
            Row("best_engine", "annotating at int8, 6x384, against the fastest engine", 2.3),
            Row("best_engine_sorted", "the same, the engine fed batches sorted by length", 1.4),
            Row("pipeline", "the same, against the pipeline of transformers", 12),
            Row("latency", "one text of 128 tokens, against the engine that answers first", 1),
            Row("peak_share", "share of the int8 peak that annotating reaches", 0.5),
        ),
    ),
    Benchmark(
        "frontier",
        (
            Row("spacy", "raw text to entities on one core, against spaCy's CNN at a lower F1", 1.5),
            Row("pipeline", "the same, against the pipeline of transformers in its fastest way", 25),
        ),
    ),
    Benchmark(
        "encode",
        (
            Row("transformers", "encoding, against transformers in batches of 32"),
            Row("transformers_sorted", "the same, the peer's batches sorted by length"),
        ),
    ),
    Benchmark(
        "embed",
        (
            Row("encode", "vectors of sentences, against sentence-transformers, float32", 3),
            Row("encode_int8", "the same with our int8 Export", 3),
            Row("search_one", "exact search, one query, against the flat index of faiss", 1),
            Row("search_many", "exact search, 64 queries at once, against the flat index of faiss", 1),
        ),
    ),
    Benchmark(
        "distill",
        (
            Row("published", "a pass of distillation from the teacher's cache, BERT base to 4x312", 2),
            Row("cached_pass", "the same, MiniLM to a third of its layers"),
        ),
    ),
    Benchmark(
        "corpus",
        (
            Row("pubmed_parser", "reading MEDLINE, against pubmed_parser"),
            Row("tokenizers", "building a corpus with six lexicons, against tokenizing alone", 1),
            Row("flat_memory", "peak memory of one copy over ten copies of an input"),
        ),
    ),
    Benchmark("gazetteer", (Row("opening", "opening six lexicons for the second time, against the first"),)),
    Benchmark("lexicons", (Row("seconds", "annotating with six lexicons and letter case, against without"),)),
    Benchmark(
        "sentences",
        (
            Row("pysbd_f1", "sentence borders, against pysbd: F1"),
            Row("pysbd_speed", "the same: speed"),
        ),
    ),
    Benchmark(
        "start",
        (
            Row("cold_start", "first entity after a cold start, against transformers", 4),
            Row("peak_memory", "the same: peak memory"),
            Row("installed", "the same: size installed"),
        ),
    ),
    Benchmark("pipe", (Row("annotate", "`model.pipe` against `alembert.annotate`"),)),
    Benchmark(
        "serve",
        (
            Row("throughput", "serving many clients, against a service around the pipeline of transformers"),
            Row("p99", "the same: slowest answer of a hundred"),
            Row("one_client", "the same, one client"),
            Row(
                "overload_kept",
                "share of the peak that remains with five times as many requests as it can answer",
                0.95,
            ),
            Row("batching", "many single texts at once, against one at a time", 3),
        ),
    ),
    Benchmark(
        "scale", (Row("machines_1000_units_3900", "PubMed on 1,000 machines (simulated): share of the ideal time"),)
    ),
    Benchmark("annotate_kills", (Row("flat_memory", "peak memory of 5,000 documents over that of a whole run"),)),
)
