"""LiveStatistics: statistics from running the model, one decoder layer at a time."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from quant.calibration.coverage import expert_tokens
from quant.calibration.decoder import Decoder, DecoderLayer, Step
from quant.calibration.gram import ADD_GRAM
from quant.calibration.hidden import HiddenStates
from quant.calibration.observe import Collector, Recorder
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present
from quant.qtensor import QTensor
from quant.stats import LayerStats, Names, Needs, Quantize
from quant.workers import workers


class LiveStatistics:
    """Runs `decoder` on the calibration windows; the hidden states before each layer are in `folder`.

    on_quantized        calibrate a layer on the outputs of the quantized layers before it, else on the originals'
    in_steps            run a layer once, a product at a time, each linear behind the quantized ones of its own layer;
                        where its methods or its shape do not allow that, and otherwise, it is run twice
    min_expert_tokens   experts that the router gives fewer are calibrated on more, those it scores highest for them
    gram                how Hessians are summed, a name in quant.calibration.gram
    raises              InputError for token ids that the model has not, and windows that it cannot hold
    """

    keep: frozenset[str] = frozenset()

    def __init__(
        self,
        decoder: Decoder,
        calibration: CalibrationTokens,
        folder: Path,
        *,
        on_quantized: bool = True,
        in_steps: bool = False,
        min_expert_tokens: int | None = None,
        gram: str = "fp32",
        num_threads: int = 1,
    ) -> None:
        _check_tokens(calibration, decoder.config)
        self.decoder = decoder
        self.config = decoder.config
        self.calibration = calibration
        self.folder = folder
        self.on_quantized = on_quantized
        self.in_steps = in_steps and on_quantized
        self.min_expert_tokens = min_expert_tokens
        self.add_gram = ADD_GRAM[gram]
        self.num_threads = num_threads
        self._batches = calibration.batches()

    def begin(self, tensors: Mapping[str, QTensor]) -> None:
        """tensors: those that embed tokens"""
        first = self._hidden(0)
        first.create()
        for windows in self._batches:
            first.write(windows, self.decoder.embed(tensors, torch.from_numpy(self.calibration.tokens[windows])))

    def layer(self, index: int, tensors: Mapping[str, QTensor], needs: Needs) -> LayerStats:
        """Statistics of the inputs that the decoder layer of these tensors, the original ones, reads."""
        collector, layer = self._collector(needs), self.decoder.layer(index, tensors)
        self._observe(index, layer, collector)
        wanted = self._wanted_tokens(tensors, collector)
        if wanted:
            self._show_extra_tokens(index, layer, wanted, collector)
        return collector.stats(extra_tokens=wanted)

    def advance(self, index: int, quantized: Mapping[str, QTensor]) -> None:
        """Makes the input of the next layer."""
        if self.on_quantized:
            self._run(index, self.decoder.layer(index, quantized))

    def through(
        self, index: int, tensors: Mapping[str, QTensor], needs: Needs, quantize: Quantize, *, in_steps: bool
    ) -> None:
        """A whole layer: `quantize` is called with the statistics of the inputs of the weights that it must quantize.

        in_steps   whether the methods allow it
        """
        stepped = self.decoder.layer(index, tensors).in_steps() if in_steps and self.in_steps else None
        if stepped is None:
            self.advance(index, quantize(self.layer(index, tensors, needs), tuple(tensors)))
            return
        shown = {name for step in stepped.steps for name in step.shows}
        made = dict(tensors) | quantize(LayerStats({}), tuple(name for name in tensors if name not in shown))
        files = {name: self._kept(name, *what) for name, what in stepped.kept.items()}
        ends = {"before": self._hidden(index), "after": self._hidden(index + 1)}
        for number, step in enumerate(stepped.steps):
            collector = self._collector(needs)
            self._step(
                index, present(self.decoder.layer(index, made).in_steps()).steps[number], files | ends, collector
            )
            if step.shows:
                made |= quantize(collector.stats(), step.shows)
        if index == self.config.num_layers - 1:
            for file in files.values():
                file.path.unlink()

    def _step(self, index: int, step: Step, kept: Mapping[str, HiddenStates], collector: Collector) -> None:
        if step.makes is not None:
            kept[step.makes].create_once()

        def one(windows: slice) -> Recorder:
            recorder = Recorder()
            out = step.run(*(kept[name].read(windows) for name in step.reads), recorder)
            if not recorder.is_finite or (step.makes == "after" and not torch.isfinite(present(out)).all()):
                raise InputError(f"calibration: layer {index} gives NaN or inf; check the model's weights")
            if step.makes is not None:
                kept[step.makes].write(windows, present(out))
            return recorder

        self._collect(one, collector)

    def done(self, index: int) -> None:
        """Removes the input of the layer, which is not needed any more."""
        self._hidden(index).path.unlink(missing_ok=True)

    def head(self, norm: Mapping[str, QTensor], names: Names, needs: Needs) -> LayerStats:
        """Statistics of the head's input: the last layer's output after the final norm.

        norm   the final norm's tensors
        names  of the weights that read it
        """
        hidden, collector = self._hidden(self.config.num_layers), self._collector(needs)

        def one(windows: slice) -> Recorder:
            recorder = Recorder()
            recorder.inputs(names, self.decoder.norm(norm, hidden.read(windows)))
            return recorder

        self._collect(one, collector)
        return collector.stats()

    def _observe(self, index: int, layer: DecoderLayer, collector: Collector) -> None:
        """Shows the collector the inputs of the layer; runs the layer for that if its outputs are kept."""
        if not self.on_quantized:
            self._run(index, layer, collector)
            return
        before = self._hidden(index)

        def one(windows: slice) -> Recorder:
            recorder = Recorder()
            layer.show(before.read(windows), recorder)
            if not recorder.is_finite:
                raise InputError(f"calibration: layer {index} gives NaN or inf; check the model's weights")
            return recorder

        self._collect(one, collector)

    def _run(self, index: int, layer: DecoderLayer, collector: Collector | None = None) -> None:
        """Runs the layer on all windows and keeps its outputs for the next one."""
        before, after = self._hidden(index), self._hidden(index + 1)
        after.create()

        def one(windows: slice) -> Recorder | None:
            recorder = None if collector is None else Recorder()
            out = layer(before.read(windows), recorder)
            if not torch.isfinite(out).all():
                raise InputError(f"calibration: layer {index} gives NaN or inf; check the model's weights")
            after.write(windows, out)
            return recorder

        self._collect(one, collector)

    def _collect(self, one: Callable[[slice], Recorder | None], collector: Collector | None) -> None:
        """Calls `one` on all batches, `num_threads` at a time, and adds their records in order."""
        with workers(self.num_threads) as pool:
            for some in self._rounds():
                recorders = list(pool.map(one, some))
                if collector is not None:
                    collector.add([recorder for recorder in recorders if recorder is not None], pool)

    def _collector(self, needs: Needs) -> Collector:
        return Collector(needs, len(self._batches), self.add_gram)

    def _wanted_tokens(self, names: Iterable[str], collector: Collector) -> dict[int, int]:
        """Expert -> how many tokens it has too few."""
        least, counts = self.min_expert_tokens or 0, expert_tokens(names, collector.num_tokens)
        return {expert: least - count for expert, count in enumerate(counts) if count < least}

    def _show_extra_tokens(
        self, index: int, layer: DecoderLayer, wanted: Mapping[int, int], collector: Collector
    ) -> None:
        before, recorder = self._hidden(index), Recorder()
        with workers(self.num_threads) as pool:
            batches = (before.read(windows) for windows in self._batches)
            pool.submit(layer.show_extra_tokens, batches, wanted, recorder).result()
            collector.add([recorder], pool)

    def _rounds(self) -> list[list[slice]]:
        """Batches that run at the same time."""
        step = self.num_threads
        return [self._batches[start : start + step] for start in range(0, len(self._batches), step)]

    def _kept(self, name: str, size: int, dtype: torch.dtype) -> HiddenStates:
        """Between the steps of a layer."""
        return HiddenStates(self.folder / f"kept-{name}", (*self.calibration.tokens.shape, size), dtype)

    def _hidden(self, index: int) -> HiddenStates:
        """The input of decoder layer `index`."""
        shape = (*self.calibration.tokens.shape, self.config.hidden_size)
        return HiddenStates(self.folder / f"hidden-{index}.f32", shape)


def _check_tokens(calibration: CalibrationTokens, config: ModelConfig) -> None:
    tokens = calibration.tokens
    if tokens.min() < 0 or tokens.max() >= config.vocab_size:
        raise InputError(
            f"calibration: token ids from {tokens.min()} to {tokens.max()}, but the model's vocabulary has "
            f"{config.vocab_size}; use the model's own tokenizer"
        )
    if tokens.shape[1] > config.max_positions:
        raise InputError(
            f"calibration: windows of {tokens.shape[1]} tokens, but the model's context holds "
            f"{config.max_positions}; give --seq-len {config.max_positions} or less"
        )
