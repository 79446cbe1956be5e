"""Choices for `slow_policy`: policies with a budget of 12, as their papers write them."""

BUDGET = 12
Held = list[int]  # positions
Observed = list[dict[int, float]]  # weights of each query, summed over the heads of a group


class Heavy:
    """H2O: the six most recent tokens, and those with the largest sums so far."""

    def __init__(self) -> None:
        self.sums: dict[int, float] = {}

    def __call__(self, held: Held, observed: Observed, seen: int, prompt: int, is_prefill: bool) -> Held:
        for mass in observed:
            for s, weight in mass.items():
                self.sums[s] = self.sums.get(s, 0) + weight
        if len(held) <= BUDGET:
            return held
        recent = [s for s in held if s >= seen - BUDGET // 2]
        others = sorted((s for s in held if s not in recent), key=lambda s: -self.sums[s])
        return [*others[: BUDGET - len(recent)], *recent]


def snap(held: Held, observed: Observed, seen: int, prompt: int, is_prefill: bool) -> Held:
    """SnapKV with a window of 4 and a kernel of 3."""
    if not is_prefill or len(held) <= BUDGET:
        return held
    window = [s for s in held if s >= seen - 4]
    before = [s for s in held if s < seen - 4]
    sums = [sum(mass.get(s, 0) for mass in observed[-4:]) for s in before]
    padded = [0, *sums, 0]
    pooled = {s: sum(padded[i : i + 3]) / 3 for i, s in enumerate(before)}
    return [*sorted(before, key=lambda s: -pooled[s])[: BUDGET - len(window)], *window]


class Scissors:
    """Scissorhands with the 5 most recent tokens and a history of 6 queries; a half of the budget goes at a time."""

    def __init__(self, heads_per_kv: int) -> None:
        self.heads_per_kv = heads_per_kv
        self.counts: dict[int, int] = {}

    def __call__(self, held: Held, observed: Observed, seen: int, prompt: int, is_prefill: bool) -> Held:
        until = BUDGET - len(held)
        if len(observed) >= 6:
            self.counts = {}
        if is_prefill or until < 6:
            for mass in observed[-6:]:
                for s, weight in mass.items():
                    self.counts[s] = self.counts.get(s, 0) + (weight / self.heads_per_kv * len(mass) >= 1)
        if len(held) <= BUDGET:
            return held
        recent = [s for s in held if s >= seen - 5]
        others = sorted((s for s in held if s not in recent), key=lambda s: (-self.counts.get(s, 0), -s))
        self.counts = {}
        return [*others[: BUDGET // 2 - len(recent)], *recent]
