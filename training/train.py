"""Trains the reference model: `python -m training.train --minutes 75 --out DIR`.

The schedule (stages, warm-up, decay) runs on the share of the run that is done: of the minutes, or of --tokens where
given, which makes the run repeat exactly on one machine. Muon trains the layers' matrices: in a probe of dense recall
over 256 tokens, AdamW was still at chance after a million tokens, where Muon had begun to look answers up.
"""

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from qbench.reference.curriculum import STAGES, Stage, answers, batches, loss_weights
from qbench.reference.skills import Sizes, render
from training.export import export
from training.measure import measure
from training.mla_moe import MlaMoeShape
from training.model import Llama, Shape
from training.optim import make_optimizers
from training.tokenizer import train_tokenizer


@dataclass(frozen=True, slots=True)
class Settings:
    """One training run. `minutes` always ends it; `tokens`, where given, paces it too."""

    out: Path
    minutes: float = 75.0
    tokens: int | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int = 2
    lr: float = 2e-3
    weight_decay: float = 0.05
    warmup_steps: int = 50
    decay_from: float = 0.55  # share of the run after which the learning rate falls to zero, linearly
    save_every_minutes: float = 5.0


class Trainer:
    """The state of a run: network, optimizers, counters, log."""

    def __init__(
        self,
        settings: Settings,
        tokenizer: Tokenizer,
        shape: Shape | MlaMoeShape | None = None,
        stages: tuple[Stage, ...] = STAGES,
    ):
        torch.manual_seed(settings.seed)
        torch.set_num_threads(settings.threads)
        self.settings, self.stages = settings, stages
        self.tokenizer = tokenizer
        self.shape = shape or Shape(vocab_size=tokenizer.get_vocab_size())
        self.model = self.first_model().to(settings.device)
        self.optimizers = make_optimizers(self.model, settings.lr, settings.weight_decay)
        self.steps = self.tokens = 0
        self.recall = 0.0  # smoothed share of right answers in the batches
        self.log: list[dict] = []
        self.started = time.perf_counter()

    def first_model(self) -> nn.Module:
        assert isinstance(self.shape, Shape)
        return Llama(self.shape)

    def batches(self, stage: Stage, seed: int) -> Iterator[np.ndarray]:
        return batches(self.tokenizer, stage, seed)

    def answers(self, rows: np.ndarray) -> np.ndarray:
        return answers(rows, self.tokenizer)

    def loss_weights(self, rows: np.ndarray) -> np.ndarray:
        return loss_weights(rows, self.tokenizer)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    @property
    def progress(self) -> float:
        """The share of the run that is done, in [0, 1]."""
        by_clock = self.seconds / (60 * self.settings.minutes)
        by_tokens = self.tokens / self.settings.tokens if self.settings.tokens else 0.0
        return min(1.0, max(by_clock, by_tokens))

    def run(self) -> dict:
        next_save = self.settings.save_every_minutes
        for index, stage in enumerate(self.stages):
            self.recall = 0.0
            source = self.batches(stage, seed=1000 * (self.settings.seed + 1) + index)
            while self.progress < stage.end and not (stage.leave_at and self.recall > stage.leave_at):
                self.step(torch.from_numpy(next(source)), stage)
                if self.seconds > 60 * next_save:
                    next_save += self.settings.save_every_minutes
                    self.save()
        return self.save()

    def step(self, rows: Tensor, stage: Stage) -> float:
        """One update from rows [B, context + 1]; returns the weighted loss."""
        self.set_learning_rate()
        weights = torch.from_numpy(self.loss_weights(rows.numpy()))[:, 1:].to(self.settings.device)
        rows = rows.to(self.settings.device)
        with torch.autocast(self.settings.device, torch.bfloat16):
            loss, logits = self.loss(rows, weights / weights.sum())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.steps += 1
        self.tokens += rows[:, 1:].numel()
        self.observe(logits, rows, stage, loss.item())
        return loss.item()

    def loss(self, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """The loss, and the logits [B, T, V] if there are any; weights [B, T] sum to 1"""
        logits = self.model(rows[:, :-1])
        losses = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        return (losses * weights.flatten()).sum(), logits

    def set_learning_rate(self) -> None:
        decay_from = self.settings.decay_from
        warm = min(1.0, (self.steps + 1) / self.settings.warmup_steps)
        decay = min(1.0, (1.0 - self.progress) / (1.0 - decay_from))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings.lr * warm * decay

    def observe(self, logits: Tensor | None, rows: Tensor, stage: Stage, loss: float) -> None:
        asked = torch.from_numpy(self.answers(rows.cpu().numpy()))[:, 1:]
        if logits is not None and asked.any():
            right = (logits.argmax(-1) == rows[:, 1:]).cpu()[asked].float().mean().item()
            self.recall += 0.05 * (right - self.recall)
        if self.steps % 50 == 0:
            entry = {
                "step": self.steps,
                "seconds": round(self.seconds),
                "tokens": self.tokens,
                "stage": stage.name,
                "loss": round(loss, 4),
                "recall": round(self.recall, 4),
            }
            self.log.append(entry)
            click.echo(json.dumps(entry), err=True)

    def save(self) -> dict:
        record = self.record()
        export(self.model, self.shape, self.tokenizer, record, self.settings.out)
        return record

    def record(self) -> dict:
        settings = asdict(self.settings) | {"out": self.settings.out.name}
        return {
            "settings": settings,
            "progress": round(self.progress, 4),
            "seconds": round(self.seconds, 1),
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_second": round(self.tokens / self.seconds, 1),
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "curriculum": [asdict(stage) for stage in self.stages],
            "processor": processor(self.settings.device),
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            "log": self.log[:: max(1, len(self.log) // 100)],
        }


def processor(device: str) -> str:
    """The name of the training processor, for the record."""
    if device != "cpu":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _check_device(context: click.Context, option: click.Parameter, device: str) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("there is no CUDA device that torch can use")
    return device


device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, callback=_check_device
)


@click.command()
@click.option("--minutes", default=75.0, show_default=True, help="Wall time at which training ends.")
@click.option("--tokens", type=int, help="Pace the schedule by this many tokens instead of by the clock.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("ref-llama"), show_default=True)
@click.option("--seed", default=0, show_default=True)
@device_option
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--lr", default=2e-3, show_default=True, help="Peak learning rate.")
def main(minutes: float, tokens: int | None, out: Path, seed: int, device: str, threads: int, lr: float) -> None:
    """Train the reference model and write it in the Hugging Face layout."""
    settings = Settings(out, minutes=minutes, tokens=tokens, seed=seed, device=device, threads=threads, lr=lr)
    record = Trainer(settings, train_tokenizer(seed)).run()
    click.echo(json.dumps({key: record[key] for key in ("seconds", "steps", "tokens", "tokens_per_second")}))
    click.echo(render(measure(out, Sizes())))


if __name__ == "__main__":
    main()
