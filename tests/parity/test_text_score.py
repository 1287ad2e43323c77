"""Scores of texts: ours are those that transformers' heads give, token by token."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
import transformers

from alembert.infer.engine_torch import TorchEngine
from alembert.infer.language_model import next_sentence_probability, score_text
from foreign_models import real_sentences, save_foreign

TEXTS = ["Breast cancer, a disease of the breast.", "x", "The gene (brca1) and the protein; 5 % of cells"]


@pytest.fixture
def texts(shared: Path) -> list[str]:
    return TEXTS + real_sentences(shared, 10)


def test_a_causal_model_gives_the_sum_of_the_log_softmax(tmp_path: Path, texts: list[str]) -> None:
    model = save_foreign(tmp_path, "BertLMHeadModel", is_decoder=True)
    engine, tokenizer = TorchEngine.open(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in texts:
        ids_1T = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logs_TV = model(ids_1T).logits[0].double().log_softmax(-1)
        expected = logs_TV[:-1].gather(1, ids_1T[0, 1:, None])[:, 0]
        scored = score_text(engine, text)
        assert scored.kind == "exact"
        assert [token.log_probability for token in scored.tokens] == pytest.approx(expected.tolist(), abs=1e-4)
        assert scored.log_probability == pytest.approx(expected.sum().item(), abs=1e-3)


@pytest.mark.parametrize("family", ["Bert", "Albert"])
def test_a_masked_model_gives_the_pseudo_log_likelihood(family: str, tmp_path: Path, texts: list[str]) -> None:
    model = save_foreign(tmp_path, f"{family}ForMaskedLM")
    engine, tokenizer = TorchEngine.open(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in texts[:6]:
        ids_1T = tokenizer(text, return_tensors="pt")["input_ids"]
        expected = []
        for place in range(1, ids_1T.shape[1] - 1):
            masked_1T = ids_1T.clone()
            masked_1T[0, place] = tokenizer.mask_token_id
            with torch.no_grad():
                logs_V = model(masked_1T).logits[0, place].double().log_softmax(-1)
            expected.append(logs_V[ids_1T[0, place]].item())
        scored = score_text(engine, text)
        assert scored.kind == "pseudo"
        assert [token.log_probability for token in scored.tokens] == pytest.approx(expected, abs=1e-4)


def test_the_next_sentence_head(tmp_path: Path, texts: list[str]) -> None:
    model = save_foreign(tmp_path, "BertForNextSentencePrediction")
    engine, tokenizer = TorchEngine.open(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    probabilities = []
    for first, second in pairwise(texts):
        inputs = tokenizer(first, second, return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs).logits.double().softmax(-1)[0, 0].item()
        probabilities.append(next_sentence_probability(engine, first, second))
        assert probabilities[-1] == pytest.approx(expected, abs=1e-5)
    assert max(probabilities) - min(probabilities) > 0.01
