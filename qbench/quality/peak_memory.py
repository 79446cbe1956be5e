"""Memory of an evaluation, predicted before its weights are read."""

from dataclasses import dataclass

from qbench.measure.host.memory import current_rss_bytes
from qbench.measure.subject import Subject
from qbench.quality.attention_delta import has_textbook
from qbench.quality.protocols.forward import scoring_bytes
from qbench.run.cache_spec import DEFAULT_CACHE
from qbench.run.choices import KERNEL, TEXTBOOK
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.offload import Use
from qbench.runtime.workspace import torch_attention_bytes
from quant.models import ModelConfig
from quant.source import Source


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Predicted bytes at the peak of an evaluation.

    process_bytes  of this process before it reads weights
    weights_bytes  as they are held, of the model and of a reference that runs next to it
    pass_bytes     activations of the largest forward pass
    piece_bytes    logits of a piece, and their comparison in float64
    """

    process_bytes: int
    weights_bytes: int
    pass_bytes: int
    piece_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.process_bytes + self.weights_bytes + self.pass_bytes + self.piece_bytes


def predicted_peak(subject: Subject, reference: Source | None, use: Use) -> PeakMemory:
    """Memory of the model, and of a reference that runs next to it."""
    options = subject.options
    predictors = [MemoryPredictor(subject.source, spec=options.cache_spec, attention=options.attention)]
    if reference is not None:
        predictors.append(MemoryPredictor(reference, impl="reference"))
    passes = [each.at(use.num_tokens, use.batch) for each in predictors]
    config = predictors[0].config
    outputs = 4 * use.batch * use.num_tokens * config.hidden_size * len(passes)
    return PeakMemory(
        process_bytes=current_rss_bytes(),
        weights_bytes=sum(each.resident_bytes for each in passes),
        pass_bytes=max(each.kv_bytes + each.workspace_bytes for each in passes) + outputs,
        piece_bytes=scoring_bytes(use.batch * use.num_tokens, config.vocab_size, len(passes)),
    )


def bytes_next_to_passes(subject: Subject, reference: Source | None, use: Use, num_models: int) -> int:
    """Memory of an evaluation under a limit in addition to weights and activations.

    It holds outputs of a pass and a piece of logits, keys and values if the pass keeps them, scores of textbook
    attention if that is compared, and a reference that runs in this process.

    num_models  whose logits are compared
    """
    options, config = subject.options, ModelConfig.of(subject.source)
    rows = use.batch * use.num_tokens
    outputs = 4 * rows * config.hidden_size * num_models
    found = outputs + scoring_bytes(rows, config.vocab_size, num_models)
    if options.cache_spec != DEFAULT_CACHE or options.attention == KERNEL:
        cache = MemoryPredictor(subject.source, spec=options.cache_spec, attention=options.attention).cache
        found += cache.size_bytes(use.num_tokens, use.batch)
    if has_textbook(options):  # one sequence after the other
        found += torch_attention_bytes(config, use.num_tokens, use.num_tokens, TEXTBOOK)
    if reference is not None:
        found += MemoryPredictor(reference, impl="reference").at(use.num_tokens, use.batch).total_bytes
    return found
