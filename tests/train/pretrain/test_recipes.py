"""Recipes: settings by name, which a file can hold whole."""

import tomllib
from collections.abc import Callable

import pytest

from alembert.errors import BadSetting
from alembert.settings import apply_changes, to_toml
from alembert.train.pretrain.settings import RECIPES, PretrainSettings, bert_original, get_recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_file_gives_the_same_settings_back(name: str) -> None:
    settings = get_recipe(name)
    assert apply_changes(PretrainSettings(), tomllib.loads(to_toml(settings)), "The file") == settings


@pytest.mark.parametrize("make", RECIPES.values())
def test_a_recipe_says_what_it_is(make: Callable[[], PretrainSettings]) -> None:
    assert make.__doc__


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "bert-original"])
def test_the_length_of_a_run_is_left_to_the_user(name: str) -> None:
    assert not any(get_recipe(name).length_of_run.values())


def test_the_published_recipe_has_the_published_numbers() -> None:
    found = bert_original()
    assert (found.steps, found.batch.tokens, found.schedule.warmup) == (1_000_000, 256 * 128, 0.01)
    assert (found.optimiser.name, found.optimiser.learning_rate, found.optimiser.epsilon) == ("bert_adam", 1e-4, 1e-6)
    assert (found.masks.rate, found.masks.max_predictions, found.sequences.static_masks) == (0.15, 20, 10)
    assert found.objectives.chosen() == {"masked_lm": 1.0, "next_sentence": 1.0}


@pytest.mark.parametrize(("wrong", "near"), [("biobret", "biobert"), ("bert_original", "bert-original")])
def test_an_unknown_recipe_is_refused_with_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(BadSetting, match=f"no recipe '{wrong}'; expected one of .*Did you mean {near}"):
        get_recipe(wrong)
