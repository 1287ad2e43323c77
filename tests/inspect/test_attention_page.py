"""The page of attention is whole, safe, small at 512 tokens, and stores what it shows."""

import json
import re
import zlib
from base64 import b64decode

import numpy as np
import pytest

from alembert.charts import render_png
from alembert.infer.attention import AttentionMaps
from alembert.inspect.attention_page import (
    build_head_chart,
    build_heads_table,
    build_overview_chart,
    build_overview_table,
    build_tokens_table,
    encode_shades,
    pool_cells,
    render_attention_page,
    to_shades,
)
from page_checks import check_page

TWO_MEGABYTES = 2_000_000


def make_maps(tokens: int = 6, layers: int = 2, heads: int = 3) -> AttentionMaps:
    weights = np.random.default_rng(3).dirichlet(np.full(tokens, 0.2), size=(layers, heads, tokens))
    names = ("[CLS]", "</script>", "<b>", *(f"##t{n}" for n in range(tokens - 4)), "[SEP]")
    special = tuple(name in ("[CLS]", "[SEP]") for name in names)
    return AttentionMaps(names, (0,) * tokens, special, weights.astype(np.float32))


def stored_heads(page: str) -> dict[str, str]:
    heads: dict[str, str] = json.loads(re.findall(r"const DATA = (.*);\n", page)[0])["heads"]
    return heads


def read_png(address: str) -> np.ndarray:
    """Decode a PNG with one byte a cell and no filter."""
    data, sizes, body = b64decode(address.partition(",")[2]), (), b""
    at = 8
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        content = data[at + 8 : at + 8 + length]
        assert int.from_bytes(data[at + 8 + length : at + 12 + length], "big") == zlib.crc32(kind + content)
        if kind == b"IHDR":
            sizes = int.from_bytes(content[:4], "big"), int.from_bytes(content[4:8], "big")
        body += content if kind == b"IDAT" else b""
        at += 12 + length
    columns, rows = sizes
    return np.frombuffer(zlib.decompress(body), np.uint8).reshape(rows, columns + 1)[:, 1:]


def test_the_page_is_whole_and_fetches_nothing() -> None:
    check_page(render_attention_page(make_maps(), "<model>"), may_run=True)


def test_tokens_that_look_like_markup_are_text() -> None:
    page = render_attention_page(make_maps(), "model")
    assert "<b></button>" not in page
    assert "&lt;b&gt;</button>" in page
    assert page.count("</script>") == 1


def test_all_heads_of_a_short_text_are_stored_as_they_are() -> None:
    maps = make_maps()
    heads = stored_heads(render_attention_page(maps, "model"))
    assert sorted(heads) == ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    restored = (read_png(heads["2.3"]) / 255) ** 2
    np.testing.assert_allclose(restored, maps.weights(2, 3), atol=2.01 / 255)


@pytest.mark.parametrize(("layer", "head", "names"), [(2, None, ["2.1", "2.2", "2.3"]), (1, 3, ["1.3"])])
def test_chosen_heads_are_stored(layer: int, head: int | None, names: list[str]) -> None:
    assert sorted(stored_heads(render_attention_page(make_maps(), "model", layer, head))) == names


def test_512_tokens_fit_into_two_megabytes_and_the_page_counts_what_is_stored() -> None:
    page = render_attention_page(make_maps(512, 2, 12), "model")
    assert len(page.encode()) < TWO_MEGABYTES
    stored = stored_heads(page)
    assert 1 < len(stored) < 24
    assert f"{len(stored)} of 24 heads are stored on this page" in page


def test_small_probabilities_keep_two_digits() -> None:
    weights = np.array([[0.002, 0.0021, 0.9959]], np.float32)
    assert ((to_shades(weights) / 255.0) ** 2).round(4)[0, :2].tolist() == pytest.approx([0.002, 0.0021], abs=2e-4)


def test_a_thumbnail_has_the_largest_of_each_square() -> None:
    weights = np.zeros((5, 5), np.float32)
    weights[4, 1] = 0.5
    assert pool_cells(weights, 3).tolist() == [[0, 0, 0], [0, 0, 0], [0.5, 0, 0]]


def test_shades_of_few_levels_are_the_nearest() -> None:
    cells = np.array([[0, 8, 9, 255]], np.uint8)
    assert read_png(encode_shades(cells, 16)).tolist() == [[0, 0, 1, 15]]


def test_tables_name_what_heads_look_at() -> None:
    maps = make_maps()
    assert build_overview_table(maps).header == ("head", "1", "2", "3")
    assert [row[0] for row in build_heads_table(maps, 2).rows] == ["2.1", "2.2", "2.3"]
    assert [row[1] for row in build_tokens_table(maps, 1, 1).rows] == list(maps.tokens)


@pytest.mark.parametrize("tokens", [6, 80])
def test_charts_are_drawn_as_files(tokens: int) -> None:
    maps = make_maps(tokens)
    for chart in (build_overview_chart(maps), build_head_chart(maps, 1, 2)):
        assert chart.svg_file().startswith(b'<svg xmlns="http://www.w3.org/2000/svg"')
        assert (render_png([chart]) or b"").startswith(b"\x89PNG")
