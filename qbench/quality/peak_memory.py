"""Memory of an evaluation, predicted before its weights are read."""

from dataclasses import dataclass

from qbench.measure.host.memory import current_rss_bytes
from qbench.measure.subject import Subject
from qbench.quality.protocols.forward import scoring_bytes
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.offload import Use
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
