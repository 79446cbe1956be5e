"""`torchrun --nproc-per-node N -m qbench.displaced`: train a diffusion transformer, and sample it in patches."""

import sys

import click
import torch

from qbench.displaced.dit import TRAIN_STEPS, trained
from qbench.displaced.measure import PatchQuality, measure_patches
from qbench.displaced.sampler import NEVER, Schedule
from qbench.run.rank_layout import RankLayout, find_world
from qbench.runtime.parallel.joined import close_joined, join_ranks
from qbench.words.read import markdown_grid
from quant.errors import InputError

HEADINGS = ("warm-up", "refresh", "PSNR dB", "distance", "one rank", "bytes per picture", "formula")
SETTINGS = ((20, 1), (4, 1), (1, 1), (4, 2), (4, 4), (4, NEVER), (1, NEVER))  # warm-up, refresh


@click.command()
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True, help="Number of sampling steps.")
@click.option("--pictures", type=click.IntRange(32), default=128, show_default=True, help="Number of pictures.")
@click.option("--train-steps", type=click.IntRange(1), default=TRAIN_STEPS, show_default=True,
              help="Number of training steps, the same on all ranks.")  # fmt: skip
def main(steps: int, pictures: int, train_steps: int) -> None:
    """Quality of displaced patches against one rank, for several schedules."""
    try:
        world = find_world()
        if world is None or world.size < 2:
            raise InputError("displaced patches need 2 ranks or more; start them with torchrun")
        torch.set_num_threads(1)
        ranks = join_ranks(RankLayout(sp=world.size), timeout_s=120)
        schedules = [Schedule(steps, min(warm_up, steps), refresh) for warm_up, refresh in SETTINGS]
        rows = list(measure_patches(trained(train_steps), ranks, schedules, pictures))
        click.echo(markdown_grid([HEADINGS, *map(cells, rows)], [True] * len(HEADINGS)))
        close_joined()
    except InputError as error:
        print(f"qbench: {error}", file=sys.stderr)
        sys.exit(2)


def cells(row: PatchQuality) -> list[str]:
    return [
        str(row.warm_up),
        str(row.refresh) if row.refresh else "never",
        "equal" if row.psnr_db is None else f"{row.psnr_db:.1f}",
        f"{row.distance:.3f}",
        f"{row.one_rank_distance:.3f}",
        f"{row.bytes_per_picture:.0f}",
        f"{row.expected_bytes_per_picture:.0f}",
    ]


if __name__ == "__main__":
    main()
