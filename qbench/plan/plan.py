"""`plan`: the memory of a model as a recipe would make it, from its config and tensor table alone."""

from dataclasses import dataclass

from qbench.plan.fits import Room, largest_batch, largest_contexts
from qbench.plan.measured import Compared
from qbench.run.cache_spec import DYNAMIC, FULL, NONE, CacheSpec, check_cache
from qbench.run.choices import CPU
from qbench.runtime.memory import MemoryParts, MemoryPredictor
from qbench.sources import open_source
from qbench.sources.planned import PlannedSource
from quant.errors import InputError
from quant.job import make_job
from quant.json_data import JsonData
from quant.kv.source import KVSource
from quant.models import ModelConfig
from quant.present import present
from quant.recipes import get_recipe
from quant.sizes import SizeSummary, size_summary
from quant.source import Source

CASE_KEYS = (
    "model",
    "recipe",
    "kv_format",
    "context",
    "batch",
    "cache",
    "policy",
    "attention_choice",
    "forward_tokens",
)
LONGEST = 8192  # context of a plan if no context is asked for and the model holds more
HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class PlanCase:
    """Conditions of a plan.

    recipe        None: the model as it is stored
    kv_format     of the KV cache, None: the recipe's or the model's own, else float32
    context       tokens per sequence; None: the model's own, at most LONGEST
    batch         sequences
    prefill       tokens of a prompt that pass at once, None: all
    memory_bytes  limit to fit into; None: no limit
    cache         layout of the KV cache
    policy        tokens that the KV cache keeps, as qbench.policies names it
    attention     the code that computes it, one of ATTENTIONS; None: the best that the model can have
    raises        InputError for attention and a cache that do not go together
    """

    recipe: str | None = None
    kv_format: str | None = None
    context: int | None = None
    batch: int = 1
    prefill: int | None = None
    memory_bytes: int | None = None
    cache: str = DYNAMIC
    policy: str = FULL
    attention: str | None = None

    def __post_init__(self) -> None:
        check_cache(CacheSpec(self.cache, self.policy), CPU, self.attention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting(JsonData):
    """Largest sizes that fit into some memory.

    kv_tokens         tokens of keys and values for which there is room next to the rest; None if the cache never grows
    largest_batch     of this context
    largest_contexts  by batch
    """

    memory_bytes: int
    fits: bool
    kv_tokens: int | None
    largest_batch: int
    largest_contexts: list[Room]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(JsonData):
    """Predicted bytes by part, bytes per token in each form of attention, and the sizes that fit.

    kv_forms_bytes_per_token   in 16 bits, see `kv_forms`
    fitting                    None if no memory was given
    attention_choice           the code that computes attention, if one was chosen
    measured                   the same by a process, see `compared`; None if no process ran
    """

    json_flat = ("size", "parts", "fitting", "measured")
    json_omits = ("attention_choice",)

    model: str
    recipe: str | None
    kv_format: str | None
    context: int
    batch: int
    cache: str
    policy: str
    forward_tokens: int
    size: SizeSummary
    parts: MemoryParts
    attention: str
    kv_forms_bytes_per_token: dict[str, int]
    windowed_kv_share: float
    attention_choice: str | None = None
    fitting: Fitting | None = None
    measured: Compared | None = None


def plan(model: str, case: PlanCase) -> Plan:
    """raises InputError for an unknown model, recipe or format, and a context past the model's"""
    source = planned_source(open_source(model), case)
    config = ModelConfig.of(source)
    context = planned_context(config, case.context, model)
    predictor = MemoryPredictor(source, spec=CacheSpec(case.cache, case.policy), attention=case.attention)
    return Plan(
        model=model,
        recipe=case.recipe,
        kv_format=source.config.get("kv_cache", {}).get("format"),
        context=context,
        batch=case.batch,
        cache=case.cache,
        policy=case.policy,
        forward_tokens=predictor.cache.tokens_per_forward(context, case.prefill),
        size=size_summary(source.tensors),
        parts=predictor.at(context, case.batch, case.prefill),
        attention=attention_form(config),
        kv_forms_bytes_per_token=kv_forms(config),
        windowed_kv_share=windowed_share(config, context),
        attention_choice=case.attention,
        fitting=fitting(predictor, case, context) if case.memory_bytes else None,
    )


def planned_source(source: Source, case: PlanCase) -> Source:
    if case.recipe is not None:
        return PlannedSource(make_job(source, get_recipe(case.recipe)), case.kv_format)
    return source if case.kv_format is None else KVSource(source, case.kv_format)


def planned_context(config: ModelConfig, asked: int | None, model: str) -> int:
    if asked is not None and asked > config.max_positions:
        raise InputError(f"a context of {asked} tokens, but {model} holds {config.max_positions}; ask for fewer")
    return asked or min(config.max_positions, LONGEST)


def fitting(predictor: MemoryPredictor, case: PlanCase, context: int) -> Fitting:
    def total(tokens: int, batch: int) -> int:
        return predictor.at(tokens, batch, case.prefill).total_bytes

    grows = predictor.spec.policy == FULL and predictor.spec.layout != NONE
    memory_bytes = present(case.memory_bytes)
    room = memory_bytes - predictor.resident_bytes
    return Fitting(
        memory_bytes=memory_bytes,
        fits=total(context, case.batch) <= memory_bytes,
        kv_tokens=predictor.cache.num_tokens_in(room) if grows else None,
        largest_batch=largest_batch(total, memory_bytes, context),
        largest_contexts=largest_contexts(total, memory_bytes, predictor.config.max_positions),
    )


def attention_form(config: ModelConfig) -> str:
    """ "mha", "gqa", "mqa" or "mla": the form that the model has"""
    if config.mla:
        return "mla"
    if config.num_kv_heads == config.num_heads:
        return "mha"
    return "mqa" if config.num_kv_heads == 1 else "gqa"


def kv_forms(config: ModelConfig) -> dict[str, int]:
    """Form -> bytes of one token over all layers, for the model's own number of heads and sizes of them.

    mha   a key and a value for every head; for a model with latent attention, its cache decompressed
    gqa   for as many heads as the model has keys for
    mqa   for one head
    mla   one latent and one rotated key for all heads
    source   DeepSeek-V2, arXiv:2405.04434, section 2.1.4
    """
    value_dim = config.mla.v_head_dim if config.mla else config.head_dim
    pair = config.head_dim + value_dim  # of a head: its key and its value
    numbers = {"mha": config.num_heads * pair, "mqa": pair}
    if config.mla:
        numbers["mla"] = config.mla.latent_size
    elif attention_form(config) == "gqa":
        numbers["gqa"] = config.num_kv_heads * pair
    return {form: HALF_BYTES * config.num_layers * numbers[form] for form in FORMS if form in numbers}


FORMS = ("mha", "gqa", "mqa", "mla")


def windowed_share(config: ModelConfig, context: int) -> float:
    """Share of a sequence's keys and values that a cache must keep if it forgets tokens outside every window."""
    if not config.windows:
        return 1.0
    return sum(min(context, window or context) for window in config.windows) / (context * config.num_layers)
