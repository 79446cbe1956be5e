"""A Llama model written by hand that copies: after two words that it has read before, it goes on as it did there.

Each token has a code of 96 signs. The first layer brings the codes of the two tokens before to each place. The second
one attends to places whose two tokens before are the two last ones, and the answer is the token there. So it retrieves
from a context of any length, and its answers are known.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from qbench.reference import weights_dir

CODE, FAST = 96, 32  # signs of a code; pairs of a head that turn by the place
HEAD = 2 * (CODE + FAST)
THETA = 1e30  # pairs from FAST on turn by less than 1e-3 in 8192 tokens, so codes are compared as they are
HIDDEN = 4 * CODE + 128
THIS, BEFORE, SECOND_BEFORE, ANSWER = (slice(i * CODE, (i + 1) * CODE) for i in range(4))
ONES = slice(4 * CODE, HIDDEN)  # constant channels
TOKEN_BEFORE = slice(FAST, FAST + CODE), slice(2 * FAST + CODE, HEAD)  # of the keys of the second layer
PLACE_GAIN = 40.0  # per pair of channels; the next place then has a score that is lower by 28
MATCH, SECOND_MATCH = 80.0, 25.0  # scores of the token before and of the one before that
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": HEAD,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": THETA,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def write_copying_model(folder: Path, read_as: Mapping[str, str]) -> Path:
    """A directory with the model, in the tokenizer of the reference models.

    read_as   token -> token that queries look for in its place, both as the vocabulary spells them
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(weights_dir("llama-8k") / name, folder)
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": len(vocab)}))
    pairs = [(vocab[old], vocab[new]) for old, new in read_as.items()]
    save_file(copying_weights(len(vocab), pairs), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def copying_weights(vocab_size: int, read_as: list[tuple[int, int]]) -> dict[str, np.ndarray]:
    """read_as   pairs of a token and of the one that queries look for in its place"""
    code = np.random.default_rng(0).choice([-1.0, 1.0], (vocab_size, CODE))  # [V, CODE]
    embedding, head = np.zeros((2, vocab_size, HIDDEN))
    embedding[:, THIS], embedding[:, ONES], head[:, ANSWER] = code, 1.0, code
    weights = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": np.ones(HIDDEN)}
    asked = np.eye(CODE) + sum(np.outer(code[new] - code[old], code[old]) / CODE for old, new in read_as)
    for layer, attention in enumerate((_tokens_before(), _tokens_after(asked))):
        prefix = f"model.layers.{layer}."
        weights |= {f"{prefix}self_attn.{name}_proj.weight": part for name, part in attention.items()}
        weights |= {f"{prefix}mlp.{name}_proj.weight": np.zeros((256, HIDDEN)) for name in ("gate", "up")}
        weights[f"{prefix}mlp.down_proj.weight"] = np.zeros((HIDDEN, 256))
        weights |= {f"{prefix}{name}_layernorm.weight": np.ones(HIDDEN) for name in ("input", "post_attention")}
    return {name: np.ascontiguousarray(weight, dtype=np.float32) for name, weight in weights.items()}


def _tokens_before() -> dict[str, np.ndarray]:
    """Head 0 attends to the place before, head 1 to the one before that, and each copies the code of the token."""
    parts = _no_attention()
    scale = _after_norm(num_codes=1)
    frequencies = THETA ** (-2 * np.arange(FAST) / HEAD)
    for head, target in enumerate((BEFORE, SECOND_BEFORE)):
        turned, first = frequencies * (head + 1), head * HEAD
        for row, turn in ((first, np.cos(turned)), (first + HEAD // 2, -np.sin(turned))):
            parts["q"][row : row + FAST, ONES] = PLACE_GAIN * np.sqrt(HEAD) / scale**2 * turn[:, None] / 128
        parts["k"][first : first + FAST, ONES] = 1 / 128
        parts["v"][first : first + CODE, THIS] = np.eye(CODE) / scale
        parts["o"][target, first : first + CODE] = np.eye(CODE)
    return parts


def _tokens_after(asked: np.ndarray) -> dict[str, np.ndarray]:
    """Head 0 attends to places after the two last tokens and copies the code of the token there.

    asked   [CODE, CODE]: code of a token -> code that its query looks for
    """
    parts = _no_attention()
    for rows, query, key, match in (
        (TOKEN_BEFORE[0], THIS, BEFORE, MATCH),
        (TOKEN_BEFORE[1], BEFORE, SECOND_BEFORE, SECOND_MATCH),
    ):
        factor = np.sqrt(match * np.sqrt(HEAD) / CODE) / _after_norm(num_codes=3)
        parts["q"][rows, query], parts["k"][rows, key] = factor * asked, factor * np.eye(CODE)
    parts["v"][:CODE, THIS] = parts["o"][ANSWER, :CODE] = np.eye(CODE)
    return parts


def _no_attention() -> dict[str, np.ndarray]:
    parts = {name: np.zeros((2 * HEAD, HIDDEN)) for name in "qkv"}
    return {**parts, "o": np.zeros((HIDDEN, 2 * HEAD))}


def _after_norm(num_codes: int) -> float:
    """Size of each channel behind an RMS norm of this many codes and the constant channels."""
    return float(np.sqrt(HIDDEN / (num_codes * CODE + 128)))
