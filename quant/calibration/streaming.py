"""Calibrated quantization, one decoder layer at a time: read, calibrate, quantize, put aside, free."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from quant.calibrated import ExpertTokens
from quant.calibration.coverage import check_coverage, expert_tokens
from quant.calibration.memory import release_free_memory
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.job import FLOATS, QuantizationJob
from quant.methods import Layer, Method
from quant.methods.base import remark_lines
from quant.models import EMBEDDING, EMBEDDING_NORM, FINAL_NORM, HEAD, POSITIONS, ModelConfig, names_by_layer
from quant.qtensor import QTensor
from quant.quantize import QuantizedSource, chunk_rows, round_tensor
from quant.stage import Stage, StageNotes
from quant.stats import InputStats, LayerStats, Names, Needs, Quantize, merge_stats

Progress = Callable[[int, int, str], None]  # layers done, layers in all, activity

# Rows of a head in float32 at a time, in weights: 256 MiB. A vocabulary may be larger than any decoder layer.
HEAD_CHUNK_WEIGHTS = 1 << 26
EMBEDDING_MODULES = (EMBEDDING, POSITIONS, EMBEDDING_NORM)


class Statistics(Protocol):
    """Where the statistics of a layer's inputs come from: a run of the model, or a file.

    keep   names of the statistics to collect for every input even if no method reads them
    """

    keep: frozenset[str]

    def begin(self, tensors: Mapping[str, QTensor]) -> None:
        """Before layer 0. tensors: those that embed tokens"""
        ...

    def through(
        self, index: int, tensors: Mapping[str, QTensor], needs: Needs, quantize: Quantize, *, in_steps: bool
    ) -> None:
        """Before a layer counts as done: calls `quantize` until it has been asked for all of its tensors.

        tensors    the layer's original ones
        in_steps   whether a weight may wait for those whose outputs it reads, and be rounded for the outputs that they
                   give then
        """
        ...

    def done(self, index: int) -> None:
        """The layer counts as done."""
        ...

    def head(self, norm: Mapping[str, QTensor], names: Names, needs: Needs) -> LayerStats:
        """Statistics of the head's input. norm: the final norm's tensors"""
        ...


def quantize_layers(
    job: QuantizationJob, statistics: Statistics, stage: Stage, progress: Progress | None = None
) -> QuantizedSource:
    """Fills `stage` from its first missing layer on, and returns the quantized model that reads from it.

    Peak memory is one decoder layer with its statistics, whatever the number of layers.
    raises   InputError for weights with NaN, statistics that are missing, or values that a method cannot work with
    """
    run = _Run(job, statistics, stage)
    total = run.config.num_layers + 1
    if stage.num_done == 0:
        statistics.begin(run.read_outside(EMBEDDING_MODULES))
    while stage.num_done < total:
        index = stage.num_done
        if progress is not None:
            progress(index, total, f"layer {index + 1} of {total - 1}" if index < total - 1 else "head")
        remarks = run.layer(index) if index < total - 1 else run.head()
        if progress is not None:
            for line in remark_lines(remarks):
                progress(index, total, line)
        statistics.done(index)
        release_free_memory()
    return QuantizedSource(job, stage)


@dataclass(frozen=True, slots=True)
class _Group:
    """Weights of one layer that a method quantizes together."""

    method: Method
    names: list[str]


class _Run:
    def __init__(self, job: QuantizationJob, statistics: Statistics, stage: Stage) -> None:
        self.job = job
        self.statistics = statistics
        self.stage = stage
        self.config = ModelConfig.of(job.source)
        self.names = names_by_layer(self.config)

    def layer(self, index: int) -> dict[str, str]:
        """Returns the methods' remarks, by name of a weight."""
        originals = {name: self.job.source.read(name) for name in self.names[index]}
        made: dict[str, QTensor] = {}
        remarks: dict[str, str] = {}
        seen: list[LayerStats] = []

        def quantize(stats: LayerStats, names: Names) -> dict[str, QTensor]:
            some = self._quantize_layer({name: originals[name] for name in names}, stats, remarks)
            seen.append(stats.without_large())
            made.update(some)
            return some

        in_steps = all(self.job.method_of(name).stands_alone for name in originals)
        try:
            self.statistics.through(index, originals, self.needs, quantize, in_steps=in_steps)
        except InputError:
            for name, qtensor in originals.items():
                self._weight(name, qtensor)  # which of them it was says more
            raise
        self.stage.commit(made, self._notes(index, merge_stats(seen), remarks))
        return remarks

    def head(self) -> dict[str, str]:
        """The head, or the embedding that is one, by its method if that reads statistics; other tensors need no
        statistics.

        An importance matrix usually has no entry for the head, which is then rounded without, as llama-quantize does.
        """
        name = EMBEDDING if self.config.tie_word_embeddings else HEAD
        made: dict[str, QTensor] = {}
        remarks: dict[str, str] = {}
        if self._asks(name) or self.statistics.keep:
            stats = self.statistics.head(self.read_outside((FINAL_NORM,)), (name,), self.needs)
            if self._asks(name) and name in stats.inputs:
                self._check({name: self.job.method_of(name)}, stats.inputs)
                made[name] = self._quantize_rows(name, stats.inputs, remarks)
        self.stage.commit(made, self._remarked(remarks))
        return remarks

    def read_outside(self, modules: tuple[str, ...]) -> dict[str, QTensor]:
        """The tensors of these modules, so far as the model has them. modules: names of their weights"""
        prefixes = tuple(name.removesuffix("weight") for name in modules)
        return {name: self.job.source.read(name) for name in self.names[None] if name.startswith(prefixes)}

    def needs(self, names: Names) -> frozenset[str]:
        return frozenset().union(*(self.job.method_of(name).needs for name in names))

    def _asks(self, name: str) -> bool:
        """Whether the tensor's rounding can depend on statistics."""
        method = self.job.method_of(name)
        reads = method.weighs_tied_tables or name != EMBEDDING  # an embedding comes here if it is the head
        return bool(method.needs) and reads and self.job.choices[name].format not in FLOATS

    def _quantize_layer(
        self, originals: Mapping[str, QTensor], stats: LayerStats, remarks: dict[str, str]
    ) -> dict[str, QTensor]:
        """All tensors of the layer as the recipe says."""
        self._check({name: self.job.method_of(name) for name in originals if self._matrix(name)}, stats.inputs)
        vectors = {name: self._weight(name, q) for name, q in originals.items() if not self._matrix(name)}
        made: dict[str, QTensor] = {}
        for group in self._groups(originals, stats.inputs):
            weights = {name: self._weight(name, originals[name]) for name in group.names}
            formats = {name: self.job.choices[name].format for name in (*weights, *vectors)}
            layer = Layer(weights, formats, vectors, self.config, remarks)
            result = group.method.quantize_layer(layer, {name: stats.inputs[name] for name in group.names})
            twice = made.keys() & result.keys()
            if twice:
                raise InputError(f"two methods of the recipe change {min(twice)}; give its readers one method")
            made |= result
        return {name: made[name] if name in made else round_tensor(self.job, name) for name in originals}

    def _groups(self, originals: Mapping[str, QTensor], inputs: Mapping[str, InputStats]) -> list[_Group]:
        groups: list[_Group] = []
        for name in originals:
            method = self.job.method_of(name)
            if not self._matrix(name) or not method.needs or name not in inputs:
                continue
            group = next((group for group in groups if group.method == method), None)
            if group is None:
                groups.append(group := _Group(method, []))
            group.names.append(name)
        return groups

    def _quantize_rows(self, name: str, inputs: Mapping[str, InputStats], remarks: dict[str, str]) -> QTensor:
        """A head's weight, some rows at a time."""
        original, wanted = self.job.source.read(name), self.job.choices[name].format
        method, num_rows = self.job.method_of(name), original.shape[0]
        step = chunk_rows(wanted, original.shape, HEAD_CHUNK_WEIGHTS)
        made = []
        for start in range(0, num_rows, step):
            rows = original.take_rows(np.arange(start, min(start + step, num_rows)))
            layer = Layer({name: self._weight(name, rows)}, {name: wanted}, config=self.config, remarks=remarks)
            made.append(method.quantize_layer(layer, inputs)[name])
        parts = {part: np.concatenate([some.parts[part] for some in made]) for part in made[0].parts}
        return QTensor(wanted, original.shape, parts, made[0].shared)

    def _check(self, methods: Mapping[str, Method], inputs: Mapping[str, InputStats]) -> None:
        asked = {name: method.needs for name, method in methods.items() if self._asks(name)}
        check_coverage(asked, inputs)

    def _weight(self, name: str, qtensor: QTensor) -> np.ndarray:
        """float32 of a tensor that its chosen format can hold."""
        weight = dequantize(qtensor)
        if not np.isfinite(weight).all():
            raise InputError(f"tensor {name}: weights with NaN or inf cannot be quantized; check the source")
        try:
            get_format(self.job.choices[name].format).check_range(weight)
        except InputError as error:
            raise InputError(f"tensor {name}: {error}") from error
        return weight

    def _matrix(self, name: str) -> bool:
        return len(self.job.source.tensors[name].shape) > 1

    def _remarked(self, remarks: Mapping[str, str]) -> StageNotes:
        """The notes with these remarks added."""
        return replace(self.stage.notes, remarks={**self.stage.notes.remarks, **remarks})

    def _notes(self, index: int, stats: LayerStats, remarks: Mapping[str, str]) -> StageNotes:
        """The notes with the part of the layer's statistics that outlives the layer."""
        notes = self._remarked(remarks)
        if stats.kv is not None:
            row = (stats.kv.k_absmax.tolist(), stats.kv.v_absmax.tolist())
            notes = replace(notes, kv_absmax=(*notes.kv_absmax, row))
        counts = expert_tokens(self.names[index], {name: inputs.num_tokens for name, inputs in stats.inputs.items()})
        if counts:
            extra = {str(expert): extra for expert, extra in stats.extra_tokens.items()}
            notes = replace(notes, experts={**notes.experts, str(index): ExpertTokens(counts, extra)})
        return notes
