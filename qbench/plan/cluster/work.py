"""RankWork: the bytes, operations and messages of one rank, from the config and the tensor table alone."""

from dataclasses import dataclass, replace
from math import prod

from qbench.plan.cluster.routed import Tokens, most_own, routed_traffic
from qbench.run.rank_layout import ALL_TO_ALL, GATHER, RankLayout
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.storage.share import Share
from qbench.runtime.kernel_steps import has_net_step
from qbench.runtime.layers.linear import choose_linear
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.parallel.make_shard import make_shard
from qbench.runtime.parallel.shard import COLUMNS, LAYER, Shard, rows_size
from qbench.runtime.parallel.traffic import Exchanges, Traffic
from qbench.runtime.weights_memory import held_bytes, is_linear
from qbench.runtime.workspace import workspace_bytes
from quant.formats import ActivationFormat, get_format
from quant.formats.int8 import SUFFIX_OF_INPUTS
from quant.kv import KVScheme
from quant.models import EMBEDDING, HEAD, ModelConfig, expected_tensors, split_name
from quant.present import present
from quant.source import Source, TensorInfo


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of memory that are read, and operations, a multiply and an add are two."""

    num_bytes: float
    operations: float


@dataclass(frozen=True, slots=True)
class Whole:
    """A model before it is divided.

    latent_bytes  of a layer, which latent attention packs a second time
    """

    source: Source
    config: ModelConfig
    latent_bytes: float = 0.0

    @classmethod
    def of(cls, source: Source) -> "Whole":
        config = ModelConfig.of(source)
        if config.mla is None:
            return cls(source, config)
        predictor = MemoryPredictor(source)
        return cls(source, config, (predictor.resident_bytes - predictor.weights.held_bytes) / config.num_layers)


class RankWork:
    """The part of one rank of a layout.

    config         of its layers and heads
    exchanges      between the lanes of its stage, in one forward pass, as `RankModel.exchanges` has them
    raises         InputError as `make_shard`
    """

    def __init__(self, whole: Whole, layout: RankLayout, rank: int) -> None:
        self.layout, self.rank, self.whole = layout, rank, whole
        source = whole.source
        self.shard = make_shard(source, whole.config, layout, rank)
        self.config = self.shard.config(whole.config)
        self.tensors = part_tensors(source, whole.config, self.shard)
        self.cache = plan_cache(Asked(self.config, KVScheme.of(source.config, whole.config, source.spec)))
        self.exchanges = planned_exchanges(self.config, self.tensors, self.shard)

    @property
    def weight_bytes(self) -> int:
        is_tied = self.config.tie_word_embeddings and self.layout.tp == 1
        return held_bytes(self.tensors, is_tied=is_tied) + round(self.whole.latent_bytes * self.config.num_layers)

    def kv_bytes(self, context: int, batch: int) -> int:
        own = context
        if self.layout.sp > 1:
            own = int(Share(self.layout.lane(self.rank), self.layout.sp).count(context))
        return self.cache.size_bytes(own, batch)

    def memory_bytes(self, context: int, batch: int, chunk: int) -> int:
        """Weights, keys and values, and activations of a prefill of `chunk` tokens of each sequence at once."""
        return self.weight_bytes + self.kv_bytes(context, batch) + workspace_bytes(self.config, chunk, batch)

    def layers(self, tokens: Tokens) -> Moved:
        """All layers of this rank, attention included; under dispatch "all-to-all", of the lane with most tokens."""
        share, moved, operations = self.whole.config.expert_share, 0.0, 0.0
        own = most_own(self.layout, tokens)
        for name, info in self.tensors.items():
            _, layer, expert = split_name(name)
            if layer is None or not is_linear(name, info):
                continue
            read = 1.0 if expert is None else 1 - (1 - share) ** tokens.total
            moved += read * info.size_bytes
            passing = own.total if expert is None else tokens.total * share
            operations += 2.0 * info.shape[0] * info.shape[1] * passing
        kept = own.batch * self._seen(tokens.depth + tokens.count) / self.layout.sp
        pairs = kept * tokens.count if tokens.depth else kept * (tokens.count + 1) / 2
        config = self.config
        operations += 2.0 * config.num_layers * config.num_heads * (config.head_dim + config.value_dim) * pairs
        return Moved(moved + kept * self.cache.bytes_per_token, operations)

    def head(self, tokens: Tokens) -> Moved:
        """The logits of the last token of each sequence."""
        info = self.tensors.get(HEAD, self.tensors[EMBEDDING])
        return Moved(info.size_bytes, 2.0 * info.shape[0] * info.shape[1] * tokens.batch)

    @property
    def is_called(self) -> bool:
        """Whether the division has Python call parts of layers that one rank runs in one call."""
        return self.layout.sp > 1 or (self.layout.tp > 1 and (self.layout.cut == GATHER or self._shares_scales))

    @property
    def _shares_scales(self) -> bool:
        formats = [get_format(info.format) for name, info in self.tensors.items() if is_linear(name, info)]
        return any(isinstance(fmt, ActivationFormat) and fmt.has_input_scale for fmt in formats)

    def traffic(self, batch: int) -> Traffic:
        """Counts of a decode step of so many sequences"""
        if self.layout.dispatch == ALL_TO_ALL:
            return routed_traffic(self.whole.config, self.layout, self.layout.lane(self.rank), batch)
        return Traffic(num_passes=1, num_parts=1, num_tokens=batch, num_wanted=batch)

    def _seen(self, num_tokens: int) -> float:
        """Tokens that a query sees, on average over the layers"""
        windows = self.config.windows or (0,)
        return sum(min(num_tokens, window or num_tokens) for window in windows) / len(windows)


def planned_exchanges(config: ModelConfig, tensors: dict[str, TensorInfo], shard: Shard) -> Exchanges:
    """As `load_ranked` counts them up while it builds the layers.

    config, tensors   of the rank
    """
    exchanges, layout = Exchanges(), shard.layout
    if layout.dispatch == ALL_TO_ALL:
        width, chosen = config.hidden_size, present(config.moe).num_experts_per_token
        return replace(exchanges, of_away=(width + 2 * chosen, width))
    if layout.ep > 1:
        num_routed = sum(config.layer_kind(layer) == "moe" for layer in range(config.num_layers))
        return exchanges.and_tokens([config.hidden_size] * num_routed)
    if layout.sp > 1:
        return exchanges.and_tokens([config.num_heads * (config.value_dim + 1)] * config.num_layers)
    if layout.tp == 1:
        return exchanges
    last: tuple[int, ...] = ()
    for name, info in tensors.items():
        module = name.partition(".layers.")[2].partition(".")[2].removesuffix(".weight")
        if module in COLUMNS and name.endswith(".weight"):
            last = _of_projection(info, module, shard)
            exchanges = exchanges.and_tokens(last)
    head = tensors[HEAD].shape[0]
    exchanges = exchanges.and_wanted([head])
    return exchanges.moved(len(last)) if shard.is_last_stage and _is_tokenwise(config, tensors, shard) else exchanges


def _of_projection(info: TensorInfo, module: str, shard: Shard) -> tuple[int, ...]:
    """Values per token of the exchanges of an output or down projection."""
    if shard.layout.cut == GATHER:
        return tuple(widths[shard.lane] for widths in shard.widths(module))
    fmt = get_format(info.format)
    has_scale = isinstance(fmt, ActivationFormat) and fmt.has_input_scale
    return (1, info.shape[0]) if has_scale else (info.shape[0],)


def _is_tokenwise(config: ModelConfig, tensors: dict[str, TensorInfo], shard: Shard) -> bool:
    """Whether the last layer's net computes the wanted tokens alone, as `load_ranked` decides it."""
    net = f"model.layers.{shard.layers[-1]}.mlp."
    formats = [info.format for name, info in tensors.items() if name.startswith(net) and is_linear(name, info)]
    shares = any(name.endswith(SUFFIX_OF_INPUTS["per_tensor"]) for name in formats)
    return has_net_step(config) and not shares and all(choose_linear(name).is_packed for name in formats)


def part_tensors(source: Source, config: ModelConfig, shard: Shard) -> dict[str, TensorInfo]:
    """The model's name of each tensor -> the part of it that this rank holds.

    config   of the whole model
    returns  the head's rows apart from the embedding, if lanes share the head of a tied model
    """
    found = {}
    for name in expected_tensors(config):
        _, layer, expert = split_name(name)
        is_here = (layer is None or layer in shard.layers) and (expert is None or expert in shard.experts)
        if is_here:
            found[name] = part_of(name, source.tensors[name], shard)
    if config.tie_word_embeddings and shard.layout.tp > 1:
        found[HEAD] = part_of(HEAD, source.tensors[EMBEDDING], shard)
    return found


def part_of(name: str, info: TensorInfo, shard: Shard) -> TensorInfo:
    """The rows or columns of a tensor that the rank holds, as `Shard.part` cuts them."""
    if shard.layout.tp == 1:
        return info
    if name == HEAD:
        return _rows(info, shard.vocabulary[shard.lane])
    match = LAYER.match(name)
    if match is None:
        return info
    cut = shard.cut_of(match[2], match[3] == "weight")
    if cut is None:
        return info
    if cut.of_rows:
        return _rows(info, cut.part)
    # Formats that round their input have one more feature, see `SummedLinears`.
    more = isinstance(get_format(info.format), ActivationFormat)
    return _cut(info, (info.shape[0], rows_size(cut.part) + more))


def _rows(info: TensorInfo, rows: slice) -> TensorInfo:
    return _cut(info, (rows_size(rows), *info.shape[1:]))


def _cut(info: TensorInfo, shape: tuple[int, ...]) -> TensorInfo:
    return replace(info, shape=shape, size_bytes=info.size_bytes * prod(shape) // prod(info.shape))
