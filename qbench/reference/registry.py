"""Which models are embedded, as data."""

from dataclasses import dataclass
from pathlib import Path

from qbench.words.written import nearest
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """An embedded model: the name after `ref:`, its description, and the model that its weights come from."""

    name: str
    description: str
    weights: str  # folder under weights/
    outliers: bool = False  # made on the fly by outliers.scale_channels
    made_by: str = "training.train"  # the module that trains the weights


MODELS: dict[str, ReferenceModel] = {
    model.name: model
    for model in (
        ReferenceModel(
            "llama", "4-layer Llama trained on a generated language: prose, recall, sums, brackets", "llama"
        ),
        ReferenceModel("llama-outliers", "the same function with 128-fold activation outliers", "llama", outliers=True),
        ReferenceModel(
            "llama-8k",
            "ref:llama trained on for a context of 8192: recall over all of it, and names that stand for other names",
            "llama-8k",
            made_by="training.lengthen",
        ),
        ReferenceModel(
            "mla-moe",
            "4-layer DeepSeek-V2 (latent attention, 8 experts of which 2, 1 shared) made of ref:llama and trained on",
            "mla-moe",
            made_by="training.distil",
        ),
    )
}


def weights_dir(name: str) -> Path:
    """The Hugging Face directory of an embedded model's weights.

    raises   InputError for an unknown name, and where the weights were not installed
    """
    if name not in MODELS:
        specs = [f"ref:{known}" for known in MODELS]
        raise InputError(f"got ref:{name}, expected one of {', '.join(specs)}{nearest(f'ref:{name}', specs)}")
    folder = Path(__file__).parent / "weights" / MODELS[name].weights
    if not (folder / "model.safetensors").exists():
        raise InputError(
            f"got ref:{name}, expected its weights in {folder}; "
            f"make them: python -m {MODELS[name].made_by} --out {folder}"
        )
    return folder
