"""`plan`: the memory of a model as a recipe would make it, from its config and tensor table alone."""

from dataclasses import dataclass
from typing import Any

from qbench.cache_kinds import DYNAMIC, NONE, WINDOW
from qbench.cache_policies import FULL, kind_of
from qbench.plan.fits import largest_batch, largest_contexts
from qbench.plan.kv_forms import attention_form, kv_forms, windowed_share
from qbench.runtime.memory import MemoryPredictor
from qbench.sources import open_source
from qbench.sweep.forecast.planned_source import PlannedSource
from quant.errors import InputError
from quant.job import make_job
from quant.kv import get_kv_format
from quant.kv.source import KVSource
from quant.models import ModelConfig
from quant.present import present
from quant.recipes import get_recipe
from quant.sizes import size_summary
from quant.source import Source

CASE_KEYS = ("model", "recipe", "kv_format", "context", "batch", "cache", "policy", "forward_tokens")
LONGEST = 8192  # the context that is planned for where none is asked and the model holds more


@dataclass(frozen=True, slots=True)
class PlanCase:
    """What a plan is made for.

    recipe        None: the model as it is stored
    kv_format     of the KV cache, None: the recipe's or the model's own, else float32
    context       tokens a sequence, None: the model's own, LONGEST at most
    batch         sequences
    prefill       tokens of a prompt that pass at once, None: all
    memory_bytes  what it must fit into, None: not asked
    cache         layout of the KV cache
    policy        tokens that the KV cache keeps, as qbench.cache_policies names it
    """

    recipe: str | None = None
    kv_format: str | None = None
    context: int | None = None
    batch: int = 1
    prefill: int | None = None
    memory_bytes: int | None = None
    cache: str = DYNAMIC
    policy: str = FULL


def plan(model: str, case: PlanCase) -> dict[str, Any]:
    """Predicted bytes by part, what a token's keys and values take in each form, and what fits.

    returns  what `MemoryPredictor.at` says of the case, and of `memory_bytes` if given: whether it fits, the tokens of
             keys and values for which there is room beside the rest, the largest batch of this context, the largest
             contexts by batch
    raises   InputError for an unknown model, recipe or format, and a context past the model's
    """
    source = planned_source(open_source(model), case)
    config = ModelConfig.of(source)
    context = planned_context(config, case.context, model)
    predictor = MemoryPredictor(source, kind=kind_of(case.cache, case.policy))
    parts = predictor.at(context, case.batch, case.prefill)
    forms, share = kv_forms(config), windowed_share(config, context)
    return {
        "model": model,
        "recipe": case.recipe,
        "kv_format": source.config.get("kv_cache", {}).get("format"),
        "context": context,
        "batch": case.batch,
        "cache": case.cache,
        "policy": case.policy,
        "forward_tokens": predictor.cache.tokens_per_forward(context, case.prefill),
        **size_summary(source.tensors).to_json(),
        **parts,
        "attention": attention_form(config),
        "kv_forms_bytes_per_token": forms,
        "windowed_kv_share": share,
        **(fitting(predictor, case, context) if case.memory_bytes else {}),
    }


def planned_source(source: Source, case: PlanCase) -> Source:
    if case.recipe is not None:
        return PlannedSource(make_job(source, get_recipe(case.recipe)), case.kv_format)
    return source if case.kv_format is None else KVSource(source, get_kv_format(case.kv_format))


def planned_context(config: ModelConfig, asked: int | None, model: str) -> int:
    if asked is not None and asked > config.max_positions:
        raise InputError(f"a context of {asked} tokens, but {model} holds {config.max_positions}; ask for fewer")
    return asked or min(config.max_positions, LONGEST)


def fitting(predictor: MemoryPredictor, case: PlanCase, context: int) -> dict[str, Any]:
    def total(tokens: int, batch: int) -> int:
        return predictor.at(tokens, batch, case.prefill)["total_bytes"]

    grows = predictor.cache.kind not in (NONE, WINDOW)
    memory_bytes = present(case.memory_bytes)
    room = memory_bytes - predictor.resident_bytes
    return {
        "memory_bytes": memory_bytes,
        "fits": total(context, case.batch) <= memory_bytes,
        "kv_tokens": max(0, int(room // predictor.cache.bytes_per_token)) if grows else None,
        "largest_batch": largest_batch(total, memory_bytes, context),
        "largest_contexts": largest_contexts(total, memory_bytes, predictor.config.max_positions),
    }
