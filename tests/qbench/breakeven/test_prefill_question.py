"""The settings that the prefill question chooses, the prompts that it measures, and its command."""

import json

import pytest
import torch
from click.testing import CliRunner
from support.memory_source import MemorySource

from qbench.breakeven import Settings
from qbench.breakeven.prefill import covered, ladders_of, prompt_of, sparsest
from qbench.cli.breakeven import command
from qbench.prefill import parse_pattern, pattern_names
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.sources.open import FirstLayers
from quant.errors import InputError
from quant.models import ModelConfig


def model():
    source = MemorySource(num_hidden_layers=2, max_position_embeddings=1024)
    return load_model(source, RunOptions(prefill="star"))


def prompt(size: int) -> torch.Tensor:
    return torch.randint(320, (1, size), generator=torch.Generator().manual_seed(0))


def test_every_pattern_has_a_ladder_that_gets_denser():
    tokens, its = prompt(1000), model()
    assert list(ladders_of(())) == [name for name in pattern_names() if name != "dense"]
    for name, ladder in ladders_of(()).items():
        shares = [covered(its, tokens, setting).blocks for setting in ladder]
        assert shares == sorted(shares) and shares[-1] > 0.9, name
        assert all(parse_pattern(setting).name == name for setting in ladder)


def test_the_sparsest_setting_that_covers_the_mass():
    tokens, its = prompt(1000), model()
    ladder = ("star:128", "star:256", "star:512", "star:100%")
    found = [covered(its, tokens, setting) for setting in ladder]
    masses = [each.mass for each in found]
    assert masses == sorted(masses) and masses[-1] == pytest.approx(1, abs=2**-20)
    between = (masses[1] + masses[2]) / 2
    assert sparsest(its, tokens, ladder, between) == found[2]
    assert sparsest(its, tokens, ladder[:2], between) == found[1]  # if no setting covers it, the densest
    assert its.prefill_tally.count == 0 and not its.prefill_tally.measures_mass


def test_a_setting_with_options_is_not_searched():
    assert ladders_of(("star:25%", "xattention")) == {
        "star:25%": ("star:25%",),
        "xattention": parse_pattern("xattention").ladder,
    }


def test_sizes_fit_the_context():
    def sizes(limit: int, *given: int) -> tuple[int, ...]:
        return Settings(RunOptions(), given).sizes_within((1024, 2048, 4096, 8192), limit)

    assert sizes(8192) == (1024, 2048, 4096, 8192)
    assert sizes(3000) == (1024, 2048, 3000)
    assert sizes(512, 500, 200) == (200, 500)
    with pytest.raises(InputError, match="600 tokens, but the model's context holds 512 here"):
        sizes(512, 600)


def test_random_models_get_random_prompts():
    tokens = prompt_of(MemorySource(), 320, 100)
    assert tokens.shape == (1, 100) and int(tokens.max()) < 320
    assert torch.equal(tokens, prompt_of(MemorySource(), 320, 100))


def test_first_layers_are_a_model():
    source = FirstLayers(MemorySource(num_hidden_layers=3), 2)
    assert ModelConfig.of(source).num_layers == 2
    assert load_model(source)(prompt(20)).shape == (1, 20, 320)
    with pytest.raises(InputError, match="has 3 layers; got 4 to measure"):
        FirstLayers(MemorySource(num_hidden_layers=3), 4)


@pytest.mark.parametrize("alternative, named", [("dense", "compared with dense"), ("stra", "did you mean 'star'")])
def test_bad_alternatives_are_named(alternative, named):
    with pytest.raises(InputError, match=named):
        ladders_of((alternative,))


def test_the_command_prints_a_point_per_size():
    arguments = "ref:llama --threads 1 --cpu-time --rounds 6 --only star:25% --at 200,500 --mass 1% --json"
    result = CliRunner().invoke(command, arguments.split(), catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["question"] == "prefill" and answer["alternative"] == "star:25%"
    assert [point["size"] for point in answer["points"]] == [200, 500]
    for point in answer["points"]:
        assert point["choice"] == "star:25%" and 0 < point["low"] <= point["ratio"] <= point["high"]
        assert 0 < point["figures"]["mass"] <= 1
    losing = [point["size"] for point in answer["points"] if point["low"] <= 1]
    assert answer["below"] == (max(losing) if losing else None)


def test_a_mass_that_no_setting_covers_is_off():
    arguments = "ref:llama --threads 1 --rounds 1 --only star:25%,query=0 --at 600 --mass 0.9999"
    result = CliRunner().invoke(command, arguments.split(), catch_exceptions=False)
    assert "no setting has the mass" in result.stdout and "off up to 600 prompt tokens" in result.stdout


def test_questions_are_listed():
    result = CliRunner().invoke(command, ["--list"], catch_exceptions=False)
    assert "prefill\n    from which prompt length on" in result.stdout
