"""From which context on a retrieval policy makes decode faster than reading every token."""

from collections.abc import Iterator

from qbench.breakeven.decode import STEPS, decode_answers
from qbench.breakeven.question import Question, Settings, opened, question
from qbench.breakeven.verdict import Answer
from qbench.progress import Progress
from qbench.run.cache_spec import CacheSpec
from qbench.runtime import load_model
from qbench.runtime.cache_suits import check_source
from qbench.speed.speed_worker import TimedModel
from quant.errors import InputError
from quant.models import ModelConfig

POLICIES = ("quest:budget=1024", "infllm:budget=1024")
SIZES = (1024, 2048, 4096, 8192)


@question("retrieval")
class RetrievalQuestion(Question):
    """Each policy takes turns with the full cache, over the same loaded weights.

    Prompts are not timed. quest computes the whole prompt, infllm reads it by blocks too.
    """

    asks = "from which context on does a retrieval policy decode faster than the full cache?"
    axis = "tokens held"

    def answers(self, spec: str, settings: Settings, progress: Progress | None = None) -> Iterator[Answer]:
        source, options = opened(spec, settings)
        names = settings.alternatives or POLICIES
        for name in names:
            asked = CacheSpec(policy=name)
            if asked.make_policy().retrieval is None:
                raise InputError(f"policy {name} is not a retrieval policy; expected quest or infllm with options")
            check_source(source, asked)
        sizes = settings.sizes_within(SIZES, ModelConfig.of(source).max_positions - STEPS)
        model = load_model(source, options)
        sides = [TimedModel(each, settings.clock) for each in (model, *map(model.following, names))]
        yield from decode_answers(
            names, sides, sizes, settings, lambda side: {"tokens_read": side.cache.tokens_read or 0.0}, progress
        )
