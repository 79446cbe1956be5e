"""Real windows: the reference model's loss on each of its held-out text, and how far quantized ones are off.

`python -m support.window_values`, from tests/, makes window_values.json again: series -> one mean per window.
"""

import json
from pathlib import Path

import numpy as np
from support.measuring import evaluated

PATH = Path(__file__).with_suffix(".json")
RECIPES = ("q8_0", "q6_k", "q4_0")


def window_values() -> dict[str, np.ndarray]:
    """ "loss" of the model; "loss of R" more than that; "divergence of R"; each [windows], nats a token."""
    return {name: np.array(values) for name, values in json.loads(PATH.read_text()).items()}


def measure() -> dict[str, list[float]]:

    blocks = {recipe: evaluated("ref:llama", recipe=recipe, reference="ref:llama")["blocks"] for recipe in RECIPES}
    tokens = np.array(blocks["q8_0"]["tokens"])
    loss = np.array(evaluated("ref:llama")["blocks"]["nll"]) / tokens
    series = {"loss": loss}
    for recipe, of in blocks.items():
        series[f"loss of {recipe}"] = np.array(of["nll"]) / tokens - loss
        series[f"divergence of {recipe}"] = np.array(of["kld"]) / tokens
    return {name: [float(f"{value:.6g}") for value in values] for name, values in series.items()}


if __name__ == "__main__":
    PATH.write_text(json.dumps(measure(), indent=0) + "\n")
