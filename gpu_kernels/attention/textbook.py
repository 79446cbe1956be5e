"""The oracle of every attention op: softmax as the textbook has it, in float64, one sequence at a time.

    score[h, q, t] = softmax_scale * query[q, h] . key[t, g(h)]        g(h) = h // (num_heads / num_kv_heads)
    out[q, h]      = sum_t exp(score - lse) value[t, g(h)]             over the tokens t that q may see
    lse[q, h]      = log(sum_t exp(score) + exp(sink[h]))              the sink is a logit without a value
    mass[g, t]     = sum over q and the heads h of group g of exp(score[h, q, t] - lse[q, h])

A query that sees nothing gets zeros, and lse = -inf (or its sink).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# The oracle takes as many heads together as have so many scores, 1 GiB: a prompt of 8192 tokens has 2**26 per head.
SCORES_AT_ONCE = 2**27


@dataclass(frozen=True, slots=True)
class Mass:
    """weight [Hkv, T] float64: the mass of each token.

    score_size  [Hkv]  max over rows and t of softmax_scale * sum_k |query| |key|
    num_rows    most queries times heads of a group that are summed
    """

    weight: Tensor
    score_size: Tensor
    num_rows: int


@dataclass(frozen=True, slots=True)
class Attended:
    """out [Q, H, Dv], lse [Q, H] float64, and the two sizes that rounding errors scale with.

    value_size  [Q, H, Dv]  sum_t weight |value|
    score_size  [Q, H]      max_t softmax_scale * sum_k |query| |key|, or |sink| if that is larger
    mass        None: not wanted
    """

    out: Tensor
    lse: Tensor
    value_size: Tensor
    score_size: Tensor
    mass: Mass | None = None

    def write(self, out: Tensor, lse: Tensor, mass: Tensor | None = None) -> None:
        """Into an op's results, rounded to their types."""
        out.copy_(self.out)
        lse.copy_(self.lse)
        if mass is not None and self.mass is not None:
            mass.copy_(self.mass.weight)


ROWS = ("out", "lse", "value_size", "score_size")  # the fields of Attended with a row per query


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor,
    softmax_scale: float,
    sinks: Tensor | None = None,
    sizes: tuple[Tensor, Tensor] | None = None,
) -> Attended:
    """One sequence.

    query    [Q, H, Dk] float           keys   [T, Hkv, Dk] float    values [T, Hkv, Dv] float; H % Hkv == 0
    visible  [Q, T] bool                sinks  [H] float
    sizes    magnitudes of keys and values that rounding errors scale with; None: their own
    """
    num_queries, num_heads, _ = query.shape
    num_tokens, num_kv_heads, _ = keys.shape
    own = torch.arange(num_heads, device=query.device) // max(num_heads // max(num_kv_heads, 1), 1)  # [H]
    sink = query.new_full((num_heads,), -torch.inf) if sinks is None else sinks
    at_once = max(1, SCORES_AT_ONCE // max(num_queries * num_tokens, 1))
    sizes = sizes or (keys, values)

    def rows(held: tuple[Tensor, Tensor], heads: Tensor) -> tuple[Tensor, Tensor]:
        return held[0][:, own[heads]], held[1][:, own[heads]]

    found = [
        _attend_heads(
            query[:, heads], rows((keys, values), heads), rows(sizes, heads), visible, softmax_scale, sink[heads]
        )
        for heads in torch.arange(num_heads, device=query.device).split(at_once)
    ]
    return beside(found)


def _attend_heads(
    query: Tensor,
    rows: tuple[Tensor, Tensor],
    sizes: tuple[Tensor, Tensor],
    visible: Tensor,
    softmax_scale: float,
    sink: Tensor,
) -> Attended:
    """Heads that each have keys and values of their own: all of [.., H, D]; sink [H], -inf if there is no sink."""
    query, (keys, values), sink = query.double(), (each.double() for each in rows), sink.double()
    key_size, value_size = (each.double().abs() for each in sizes)
    score = softmax_scale * torch.einsum("qhd,thd->hqt", query, keys)
    score = score.masked_fill(~visible, -torch.inf)  # [H, Q, T]
    size = softmax_scale * torch.einsum("qhd,thd->hqt", query.abs(), key_size).masked_fill(~visible, 0.0)
    sink = sink[:, None].expand(-1, query.shape[0])  # [H, Q]
    lse = torch.cat([score, sink[..., None]], dim=-1).logsumexp(-1)  # [H, Q]
    weight = (score - lse.where(lse != -torch.inf, 0.0)[..., None]).exp()  # [H, Q, T]
    sink_size = sink.abs().where(sink.isfinite(), 0.0)[..., None]
    return Attended(
        torch.einsum("hqt,thd->qhd", weight, values),
        lse.T,
        torch.einsum("hqt,thd->qhd", weight, value_size),
        torch.cat([size, sink_size], dim=-1).amax(-1).T,
    )


def visible_tokens(
    num_queries: int, length: int, window: int | None = None, device: torch.device | None = None
) -> Tensor:
    """[Q, T] bool: the queries are the last of `length` tokens; each sees itself and the tokens before it.

    window  sees this many tokens at most, itself among them
    """
    position = torch.arange(length - num_queries, length, device=device)[:, None]  # [Q, 1]
    token = torch.arange(length, device=device)[None, :]  # [1, T]
    visible = token <= position
    return visible if window is None else visible & (token > position - window)


def gather_pages(cache: Tensor, pages: Tensor, length: int) -> Tensor:
    """The first `length` tokens of a sequence: cache [num_pages, page_size, ...], pages [P] -> [length, ...]

    Only pages that hold them are looked up: the table's other entries may be anything.
    """
    needed = pages[: -(-length // cache.shape[1])].long()
    return cache[needed].flatten(0, 1)[:length]


def mass_of(
    query: Tensor,
    keys: Tensor,
    lse: Tensor,
    visible: Tensor,
    softmax_scale: float,
    most_slots: int | None = None,
    key_size: Tensor | None = None,
) -> Mass:
    """The mass of one sequence's tokens from the lse [Q, H] of its queries; other arguments as `attend` takes them.

    most_slots  of the result, zeros from T on; None: T
    key_size    as `sizes` of `attend`
    """
    num_tokens, num_kv_heads, _ = keys.shape
    weight = query.new_zeros(num_kv_heads, most_slots or num_tokens, dtype=torch.float64)
    size = query.new_zeros(num_kv_heads, dtype=torch.float64)
    group = query.shape[1] // max(num_kv_heads, 1)
    key_size = keys.abs() if key_size is None else key_size
    for g in range(num_kv_heads):
        rows, key = query[:, g * group : (g + 1) * group].double(), keys[:, g].double()  # [Q, heads, D], [T, D]
        score = softmax_scale * torch.einsum("qhd,td->hqt", rows, key)
        row_lse = lse[:, g * group : (g + 1) * group].double().T[..., None]  # [heads, Q, 1]
        each = (score - row_lse).exp().where(visible, 0.0)
        weight[g, :num_tokens] = each.sum((0, 1))
        sizes = softmax_scale * torch.einsum("qhd,td->hqt", rows.abs(), key_size[:, g].double())
        sizes = sizes.masked_fill(~visible, 0.0)
        size[g] = sizes.amax() if sizes.numel() else 0.0
    return Mass(weight, size, len(query) * group)


def stack(rows: list[Attended]) -> Attended:
    """Sequences of the same number of queries, as one batch: out [B, Q, H, Dv] and so on."""
    found = (torch.stack([getattr(row, name) for row in rows]) for name in ROWS)
    return Attended(*found, mass=join_masses([row.mass for row in rows], torch.stack))


def concatenate(rows: list[Attended]) -> Attended:
    """Sequences of unlike numbers of queries, one after the other: out [sum of Q, H, Dv]; mass as `stack` does."""
    found = (torch.cat([getattr(row, name) for row in rows]) for name in ROWS)
    return Attended(*found, mass=join_masses([row.mass for row in rows], torch.stack))


def beside(heads: list[Attended]) -> Attended:
    """Heads of one sequence, the next after the last: out [Q, sum of H, Dv] and so on."""
    rows = (torch.cat([getattr(each, name) for each in heads], dim=1) for name in ROWS)
    return Attended(*rows, mass=join_masses([each.mass for each in heads], torch.cat))


def join_masses(masses: Sequence[Mass | None], join: Callable[[list[Tensor]], Tensor]) -> Mass | None:
    """Mass of heads of one sequence by torch.cat, of sequences by torch.stack; None if it is not wanted."""
    found = [mass for mass in masses if mass is not None]
    if not found:
        return None
    weights, sizes = [mass.weight for mass in found], [mass.score_size for mass in found]
    return Mass(join(weights), join(sizes), max(mass.num_rows for mass in found))
