"""Facts of a model and a speed case without timing: sizes, and the least work."""

from dataclasses import dataclass
from typing import Any

from qbench.measure.metrics import Facts
from qbench.measure.subject import Subject
from qbench.run.choices import CPU
from qbench.run.work import SpeedWork
from qbench.runtime.memory import MemoryPredictor
from qbench.speed.case_memory import device_parts_of_case, parts_of_case
from qbench.speed.roofline import Shape, least_work, linear_operands
from quant.json_data import JsonData

# of `MemoryParts`: weights as stored and as held, keys and values, activations, and the sum of held bytes
PARTS = ("weights", "resident", "kv", "workspace", "total")


@dataclass(frozen=True, slots=True)
class CaseFacts(JsonData):
    """Sizes, and the least work of a case.

    predicted_bytes  of memory, by part
    work             as `least_work`
    """

    facts: Facts
    kv_bytes_per_token: float
    predicted_bytes: dict[str, int]
    work: dict[str, dict[str, float]]


def case_facts(subject: Subject, model: Any, case: SpeedWork) -> CaseFacts:
    shape, tensors = Shape.of(model), dict(subject.source.tensors)
    if subject.options.device == CPU:
        how = {"spec": model.cache_spec, "attention": model.attention}
        memory = parts_of_case(MemoryPredictor(subject.source, impl=model.impl, **how), case)
        predicted, kv_bytes_per_token = memory.to_json(), memory.kv_bytes_per_token
    else:
        predicted = device_parts_of_case(model, subject.source, case)
        kv_bytes_per_token = shape.kv_bytes_per_token
    return CaseFacts(
        facts=subject.facts(model.impls, model.kernels, model.prefill_tally),
        kv_bytes_per_token=kv_bytes_per_token,
        predicted_bytes={part: predicted[f"{part}_bytes"] for part in PARTS},
        work=least_work(tensors, shape, linear_operands(tensors, model), case),
    )
