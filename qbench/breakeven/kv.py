"""From which context on a KV format makes decode faster than the model's own format."""

from collections.abc import Iterator

from qbench.breakeven.decode import STEPS, decode_answers
from qbench.breakeven.question import Question, Settings, opened, question
from qbench.breakeven.verdict import Answer
from qbench.progress import Progress
from qbench.runtime import load_model
from qbench.speed.speed_worker import TimedModel
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.source import KVSource
from quant.models import ModelConfig
from quant.source import Source

FORMATS = ("kv-f16", "kv-int8", "kv-int4", "kv-fp8")
SIZES = (128, 512, 2048, 8192)


@question("kv")
class KVQuestion(Question):
    """Each format takes turns with the model's own (or --kv), over the same loaded weights."""

    asks = "from which context on does a KV format decode faster than the default?"
    axis = "tokens held"

    def answers(self, spec: str, settings: Settings, progress: Progress | None = None) -> Iterator[Answer]:
        source, options = opened(spec, settings)
        names = settings.alternatives or FORMATS
        schemes = [scheme_of(source, name) for name in names]
        limit = ModelConfig.of(source).max_positions - STEPS
        sizes = settings.sizes_within(SIZES, limit)
        model = load_model(source, options)
        sides = [TimedModel(each, settings.clock) for each in (model, *map(model.keeping, schemes))]
        yield from decode_answers(
            names, sides, sizes, settings, lambda side: {"kv_bytes_per_token": side.cache.bytes_per_token}, progress
        )


def scheme_of(source: Source, name: str) -> KVScheme:
    """raises InputError for a KV format that is unknown, or that the model cannot have"""
    config = ModelConfig.of(source)
    if config.mla is not None:
        raise InputError(f"{source.spec} has latent attention; `qbench mla --kv FORMAT` measures its formats")
    its = KVSource(source, name)
    scheme = KVScheme.of(its.config, config, source.spec)
    if scheme is None:
        raise InputError(f"{name} is the default; name another KV format")
    return scheme
