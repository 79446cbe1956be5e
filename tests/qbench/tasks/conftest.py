import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import save_file
from support.architectures import random_weights, small_config
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from qbench.reference import weights_dir
from qbench.reference.corpus import EOS
from qbench.runtime import load_model
from qbench.sources import open_source
from qbench.tasks.model import TaskModel


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> Path:
    """A directory of random float32 weights with the reference models' tokenizer and a context of 128 tokens."""
    folder = tmp_path_factory.mktemp("random")
    # ids 0 to 1535; EOS is 0
    config = small_config(vocab_size=1536, max_position_embeddings=128, bos_token_id=0, eos_token_id=0)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(random_weights(config), folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(weights_dir("llama") / "tokenizer_config.json", folder)
    tokenizer = Tokenizer.from_file(str(weights_dir("llama") / "tokenizer.json"))
    # transformers adds BOS if the file itself says so, and ignores a separate "add_bos_token".
    tokenizer.post_processor = TemplateProcessing(single=f"{EOS} $A", special_tokens=[(EOS, 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def task_model():
    """folder -> its TaskModel"""

    def build(folder: Path) -> TaskModel:
        source = open_source(str(folder))
        return TaskModel(load_model(source), source)

    return build
