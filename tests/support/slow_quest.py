"""Quest as the paper writes it: one query of one head at a time, one page at a time, in float64."""

import numpy as np

PAGE = 16


def slow_quest(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, num_prompt: int, num_pages: int, scale: float
) -> tuple[np.ndarray, list[list[int]]]:
    """Outputs of the query heads of one KV head, and the pages that each query reads.

    The queries of the prompt read everything. Heads of a group share their pages, by the sum of their bounds.

    q        [H / G, T, D]; k, v [T, D]
    returns  out [H / G, T, D] float64, and per query its pages in text order
    """
    out, read = np.zeros(q.shape), []
    for t in range(q.shape[1]):
        own = t // PAGE
        pages = list(range(own + 1))
        if t >= num_prompt and len(pages) > num_pages:
            bounds = [page_bound(q[:, t], k[page * PAGE : (page + 1) * PAGE]) for page in range(own)]
            best = sorted(range(own), key=lambda page: (-bounds[page], page))[: num_pages - 1]
            pages = [*sorted(best), own]
        seen = [s for page in pages for s in range(page * PAGE, min((page + 1) * PAGE, t + 1))]
        for h in range(len(q)):
            scores = scale * (k[seen] @ q[h, t])
            weights = np.exp(scores - scores.max())
            out[h, t] = weights / weights.sum() @ v[seen]
        read.append(pages)
    return out, read


def page_bound(queries: np.ndarray, keys: np.ndarray) -> float:
    """queries [H / G, D], keys [PAGE, D] -> the sum over heads and channels; minima and maxima are float16"""
    low, high = (bound.astype(np.float16).astype(np.float64) for bound in (keys.min(0), keys.max(0)))
    return sum(max(query[i] * low[i], query[i] * high[i]) for query in queries for i in range(len(low)))
