"""Architecture: the facts that distinguish kinds of models, as data; and the rows that every decoder has."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quant.errors import InputError, shown
from quant.models.moe import ExpertKeys
from quant.models.rows import TensorRow
from quant.models.values import RenamedConfig

EMBEDDING = "model.embed_tokens.weight"
POSITIONS = "model.embed_positions.weight"
EMBEDDING_NORM = "model.embed_layernorm.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
# Keys by which configs of embedding models let a query see later tokens, and the value of a causal decoder.
CAUSAL = {"is_causal": True, "use_bidirectional_attention": False}


@dataclass(frozen=True, slots=True)
class Architecture:
    """name is the class in a config's `architectures`; tensors are in file order, the layer's rows together.

    gguf_arch        None: llama.cpp does not know it
    experts          how its configs and tensors speak of routed experts, or None where every layer is dense
    has_mla          keys and values come from a latent, as DeepSeek's multi-head latent attention makes them
    has_draft_layers checkpoints end in layers that draft tokens ahead, which decoding one at a time has no use for
    norm             "rms", or "layer": mean taken away, and a bias
    positions        "rope", "learned" (a table, added to the embedding) or "alibi" (a slope over the distance)
    position_offset  rows of the table of positions before that of position 0
    windows          a key of `windows.PATTERNS`: layers that attend to a window, if the config does not list them
    local_theta      the layers with a window have a RoPE of their own, of this base if the config does not name one
    scaled_embedding whether embeddings are multiplied by sqrt(hidden_size)
    partly_rotated   whether configs may name a share of each head that is rotated
    ffn_ratio        width of the feed-forward net over that of the model, where the config does not say
    gguf_mark        of the GGUF files of this one among several that share `gguf_arch`: a key, after "ARCH.", and its
                     value there, or None for any but 0; of marks that a file has, the first in ARCHITECTURES counts
    prefix           of the checkpoint's names, which some files leave away
    leftovers        ends of the names of tensors that checkpoints hold in addition to the weights
    keys             of a config.json, if this architecture has other names: the usual key -> its own; the usual one
                     means nothing there
    aliases          other names that files have for a key, as transformers' attribute_map: name -> key
    defaults         values for keys that a config.json lacks, by the usual key
    only             keys with the one value that is supported, which is also the value for a config that lacks them
    """

    name: str
    model_type: str
    gguf_arch: str | None
    tensors: tuple[TensorRow, ...]
    experts: ExpertKeys | None = None
    has_mla: bool = False
    has_draft_layers: bool = False
    norm: str = "rms"
    positions: str = "rope"
    position_offset: int = 0
    windows: str | None = None
    local_theta: float | None = None
    scaled_embedding: bool = False
    partly_rotated: bool = False
    ffn_ratio: int | None = None
    gguf_mark: tuple[str, int | None] | None = None
    prefix: str = "model."
    leftovers: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)

    def canonical(self, config: Mapping[str, Any]) -> RenamedConfig:
        """A config.json of this architecture in the keys that most others have.

        raises   InputError for a value that is not supported, and for attention that is not causal
        """
        config = self._without_aliases(config)
        for key, causal in CAUSAL.items():
            if config.get(key) not in (None, causal):
                raise InputError(
                    f"{key} is {shown(config[key])}: attention is not causal, since queries see later tokens; expected "
                    f"{causal}"
                )
        for key, supported in self.only.items():
            if config.get(key) not in (None, supported):
                raise InputError(f"{key} {shown(config[key])} is not supported; known: {supported}")
        named = {key: config[own] for key, own in self.keys.items() if config.get(own) is not None}
        others = {key: value for key, value in config.items() if key not in self.keys}
        return RenamedConfig({**self.defaults, **others, **named}, self.keys)

    def own_key(self, key: str) -> str:
        """The name of a usual key in this architecture's config.json."""
        return self.keys.get(key, key)

    def _without_aliases(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        found = {alias: key for alias, key in self.aliases.items() if config.get(alias) is not None}
        for alias, key in found.items():
            if config.get(key) not in (None, config[alias]):
                logging.getLogger(__name__).warning(
                    "%s is %s and %s, its other name, %s: the first counts",
                    key,
                    shown(config[key]),
                    alias,
                    shown(config[alias]),
                )
        return {**config, **{key: config[alias] for alias, key in found.items() if config.get(key) is None}}


def decoder(*layer: TensorRow, final_norm: tuple[TensorRow, ...] = (), begin: tuple[TensorRow, ...] = ()):
    """The rows of a layer between those of embedding, final norm and head.

    begin        tensors between the embedding and the first layer
    final_norm   its rows, if it is more than a weight
    """
    return (
        TensorRow(EMBEDDING, "token_embd.weight", ("vocab_size", "hidden_size")),
        *begin,
        *layer,
        *(final_norm or (TensorRow(FINAL_NORM, "output_norm.weight", ("hidden_size",)),)),
        TensorRow(HEAD, "output.weight", ("vocab_size", "hidden_size"), only_if="has_head"),
    )
