"""`--memory` as a size, and as a share of the model's weights, wherever MODEL is written."""

import click
import pytest
from click.testing import CliRunner

from qbench.cli.memory_size import SIZE_OR_SHARE
from qbench.cli.run_options import axis_option
from qbench.sources import open_source

MODEL = "rand:tiny"


@click.command()
@click.argument("model", is_eager=True)
@axis_option("memory")
def command(model: str, memory: int | None) -> None:
    click.echo(memory)


@pytest.mark.parametrize("arguments", [("--memory", "50%", MODEL), (MODEL, "--memory", "50%")])
def test_a_share_is_that_of_the_weights(arguments: tuple[str, ...]) -> None:
    weight_bytes = sum(tensor.size_bytes for tensor in open_source(MODEL).tensors.values())
    assert CliRunner().invoke(command, arguments).output == f"{weight_bytes // 2}\n"


def test_a_size_needs_no_model() -> None:
    assert CliRunner().invoke(command, ["no such file", "--memory", "2GiB"]).output == f"{2 << 30}\n"


@pytest.mark.parametrize(("text", "expected"), [("25%", 0.25), ("100%", 1.0), ("2MiB", 2 << 20), ("1B", 1)])
def test_a_share_without_a_model_is_a_float(text: str, expected: float) -> None:
    found = SIZE_OR_SHARE.convert(text, None, None)
    assert found == expected and isinstance(found, type(expected))


@pytest.mark.parametrize("text", ["0%", "-5%", "x%", "inf%", "nan%"])
def test_a_share_is_above_zero(text: str) -> None:
    result = CliRunner().invoke(command, ["no such file", "--memory", text])
    assert result.exit_code == 2 and f"memory '{text}': expected" in result.output


@pytest.mark.parametrize(
    "words", ["generate MODEL --prompt Once -n 4", "bench MODEL -p 8 -n 4 -r 1", "eval MODEL --windows 1"]
)
def test_a_limit_that_is_too_small_leaves_no_file(words: str, qbench, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    outcome = qbench(*words.replace("MODEL", "ref:llama").split(), "--memory", "100MiB")
    outcome.fails_with("--memory 100MiB is too little for one layer", "the smallest that works here is")
    assert not list(tmp_path.iterdir())
