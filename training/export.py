"""The trained network in the Hugging Face layout, written whole or not at all."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

from qbench.reference.corpus import EOS
from quant.present import present
from training.mla_moe import MlaMoe, MlaMoeShape
from training.model import Llama, Shape
from training.tokenizer import save_tokenizer

# The trained networks by the name that their config.json gives them.
NETWORKS = {"LlamaForCausalLM": (Llama, Shape), "DeepseekV2ForCausalLM": (MlaMoe, MlaMoeShape)}


def export(model: nn.Module, shape: Shape | MlaMoeShape, tokenizer: Tokenizer, record: dict, out: Path) -> Path:
    """config.json, model.safetensors (bfloat16), tokenizer.json, tokenizer_config.json and training.json in `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        tensors = {name: weight.bfloat16().cpu().contiguous() for name, weight in model.state_dict().items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        _write_json(shape.hf_config(present(tokenizer.token_to_id(EOS))), folder / "config.json")
        save_tokenizer(tokenizer, folder, shape.max_position_embeddings)
        _write_json(record, folder / "training.json")
        out.mkdir(exist_ok=True)
        for path in folder.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.chmod(0o644)  # safetensors creates its file readable by its owner alone
            os.replace(path, out / path.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return out


def load(folder: Path) -> nn.Module:
    """The network of `folder` in float32, for training code and its tests."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    network, shape = NETWORKS[config["architectures"][0]]
    model = network(shape(**{key: config[key] for key in shape.__dataclass_fields__}))
    model.load_state_dict({name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()})
    return model.eval()


def _write_json(content: dict, path: Path) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
