"""`alembert embed search`: what it reads and prints. Loaded with the command, since it loads numpy."""

from collections.abc import Sequence
from dataclasses import asdict

from alembert.cli.lines import each_line
from alembert.errors import BadInput
from alembert.infer.embedder import Embedder
from alembert.infer.index import VectorIndex
from alembert.infer.search import QUERY_BATCH, Hit, SimilarityMeasure, find_nearest
from alembert.terminal.output import print_json, visible

_SHOWN = 160
"""Characters of a text that are shown; all of it is in the JSON form."""


def search_lines(
    index: VectorIndex,
    embedder: Embedder,
    queries: Sequence[str],
    top: int,
    *,
    measure: SimilarityMeasure,
    int8: bool,
    as_json: bool,
) -> None:
    """Answer the given queries, or each line of stdin if there are none."""
    lines: list[str] = list(queries)
    if not queries:
        each_line(lines.append)
    if not all(line.strip() for line in lines) or not lines:
        raise BadInput("There is nothing to look for. Give queries after the folder, or one a line on stdin.")
    for start in range(0, len(lines), QUERY_BATCH):
        part = lines[start : start + QUERY_BATCH]
        found = find_nearest(index, embedder.embed(part).vectors_ND, top, measure=measure, copy=int8)
        for query, hits in zip(part, found, strict=True):
            _show(index, query, hits, as_json)


def _show(index: VectorIndex, query: str, hits: Sequence[Hit], as_json: bool) -> None:
    units = [index.unit(hit.row) for hit in hits]
    if as_json:
        pairs = zip(hits, units, strict=True)
        print_json({"query": query, "hits": [asdict(hit) | asdict(unit) for hit, unit in pairs]})
        return
    print(visible(query))
    for hit, unit in zip(hits, units, strict=True):
        place = f"{unit.source} {unit.id} {unit.start}-{unit.end}"
        text = unit.text if len(unit.text) <= _SHOWN else f"{unit.text[:_SHOWN].rstrip()} …"
        print(f"  {hit.score:7.4f}  {visible(place)}  {visible(' '.join(text.split()))}", flush=True)
    if not hits:
        print("  nothing: there are no vectors")
