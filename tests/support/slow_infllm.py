"""InfLLM as the paper and the authors' code have it: one KV head, one token at a time in float64."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class SlowInfLLM:
    """The context memory of one layer. Heads of a group share their keys, and a representative is a float16 mean.

    frequency   radians per position of each rotary pair
    num_blocks  distant blocks that a forward pass reads
    """

    init: int
    local: int
    block: int
    representatives: int
    num_blocks: int
    frequency: np.ndarray
    smooth: float = 0.0
    keys: list[np.ndarray] = field(default_factory=list)  # [G, D] per token, without rotation
    placed: list[np.ndarray] = field(default_factory=list)  # the keys at their places in the text
    values: list[np.ndarray] = field(default_factory=list)
    received: list[np.ndarray] = field(default_factory=list)  # [G] per token
    means: list[np.ndarray] = field(default_factory=list)  # [G, D] per distant block
    scores: list[float] = field(default_factory=list)  # of the last forward pass
    read: list[list[int]] = field(default_factory=list)  # blocks of each forward pass

    def turned(self, x: np.ndarray, position: int) -> np.ndarray:
        half = len(x) // 2
        cos, sin = np.cos(position * self.frequency), np.sin(position * self.frequency)
        return np.concatenate((x[:half] * cos - x[half:] * sin, x[half:] * cos + x[:half] * sin))

    def first_local(self) -> int:
        return self.init + len(self.means) * self.block if self.means else 0

    def forward(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
        """q [H, T, D], k, v [G, T, D] without rotation -> out [H, T, D]"""
        start, (num_heads, num_new, _) = len(self.keys), q.shape
        self.keys += list(k.swapaxes(0, 1))
        self.placed += [np.array([self.turned(key, start + t) for key in k[:, t]]) for t in range(num_new)]
        self.values += list(v.swapaxes(0, 1))
        self.received += [np.zeros(len(k)) for _ in range(num_new)]
        first, group = self.first_local(), num_heads // len(k)
        starts = [self.init + b * self.block for b in self.choose(q, group)]
        far = list(range(self.init)) if self.means else []
        far += [s for begin in starts for s in range(begin, begin + self.block)]
        out = np.zeros(q.shape)
        for t in range(num_new):
            near = list(range(first, start + t + 1))
            for h in range(num_heads):
                g = h // group
                at_end, here = self.turned(q[h, t], self.local - 1), self.turned(q[h, t], start + t)
                scores = [scale * at_end @ self.keys[s][g] for s in far]
                scores += [scale * here @ self.placed[s][g] for s in near]
                weights = np.exp(np.array(scores) - max(scores))
                weights /= weights.sum()
                for weight, s in zip(weights, far + near, strict=True):
                    out[h, t] += weight * self.values[s][g]
                    self.received[s][g] += weight * (s >= first)
        self.move()
        return out

    def choose(self, q: np.ndarray, group: int) -> list[int]:
        scores = [0.0] * len(self.means)
        for b, mean in enumerate(self.means):
            for h in range(len(q)):
                meets = [self.turned(query, self.local - 1) @ mean[h // group] for query in q[h]]
                scores[b] += float(np.mean(meets))
        if self.smooth and q.shape[1] == 1:
            for b, last in enumerate(self.scores):
                scores[b] = self.smooth * last + (1 - self.smooth) * scores[b]
        self.scores = scores
        best = sorted(range(len(scores)), key=lambda b: (-scores[b], b))[: self.num_blocks]
        self.read.append(sorted(best))
        return self.read[-1]

    def move(self) -> None:
        """Blocks that no longer hold one of the last tokens become distant."""
        while len(self.keys) - self.init - (len(self.means) + 1) * self.block >= self.local:
            start = self.init + len(self.means) * self.block
            tokens, mean = range(start, start + self.block), []
            for g in range(len(self.keys[0])):
                best = sorted(tokens, key=lambda s: (-self.received[s][g], s))[: self.representatives]
                mean.append(np.mean([self.keys[s][g] for s in best], 0).astype(np.float16).astype(np.float64))
            self.means.append(np.array(mean))
