"""From which batch on 8-bit weights and activations decode faster than 4-bit weights."""

from collections.abc import Iterator

from qbench.breakeven.question import Question, Settings, opened, question
from qbench.breakeven.turns import ratios_to_first
from qbench.breakeven.verdict import Answer, Point
from qbench.progress import Progress
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.speed.speed_worker import TimedModel
from quant.recipes import get_recipe

FOUR_BITS = "rtn-w4g128"
RECIPES = ("rtn-w8a8",)
BATCHES = (1, 4, 16, 64)
STEPS = 4  # decode steps per round


@question("w8a8")
class W8A8Question(Question):
    """Each recipe takes turns with a 4-bit one (or --recipe), in decode steps of a whole batch."""

    asks = "from which batch on do 8-bit weights and activations decode faster than 4-bit weights?"
    axis = "sequences"

    def answers(self, spec: str, settings: Settings, progress: Progress | None = None) -> Iterator[Answer]:
        names = settings.alternatives or RECIPES
        for name in names:
            get_recipe(name)
        first = settings.options.recipe or FOUR_BITS
        loaded = [opened(spec, settings.with_options(recipe=name)) for name in (first, *names)]
        sides = [TimedModel(load_model(*each), settings.clock) for each in loaded]
        sizes = settings.sizes or BATCHES
        points: dict[str, list[Point]] = {name: [] for name in names}
        for number, size in enumerate(sorted(set(sizes))):
            if progress:
                progress(number, len(sizes), "batches")
            case = SpeedWork(pp=0, tg=STEPS, batch=size, repetitions=settings.rounds)
            for name, found in zip(names, ratios_to_first(sides, case, "tg"), strict=True):
                points[name].append(Point(size, name, found.value, found.low, found.high))
        for name, its in points.items():
            yield Answer.of(name, its)
