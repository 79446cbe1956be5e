"""The table that llama-perplexity --kl-divergence prints, under its own names and by its own formulas.

Its +- takes tokens for independent, which those of a text are not: that tool prints it so, and the intervals of a
record, drawn from whole windows, are the wider and truer ones.
source   llama.cpp, tools/perplexity/perplexity.cpp, kl_divergence
"""

import numpy as np

from qbench.quality.kld.kld import Divergence

LEAST = 100  # tokens: of fewer it prints nothing
ENDS = {"Maximum": 1.0, "99.9%": 0.999, "99.0%": 0.99, "95.0%": 0.95, "90.0%": 0.9}
KLD_ROWS = ENDS | {"Median": 0.5, "10.0%": 0.1, "5.0%": 0.05, "1.0%": 0.01, "0.1%": 0.001, "Minimum": 0.0}
DELTA_ROWS = ENDS | {"75.0%": 0.75, "Median": 0.5, "25.0%": 0.25} | dict(list(KLD_ROWS.items())[6:])


def llama_statistics(nll: np.ndarray, compared: Divergence) -> dict[str, dict[str, float | None]] | None:
    """name -> {value, error}, error None if that tool prints no error; shares and probabilities are 0 to 1.

    nll       [N] float64 of the model
    returns   None for less than 100 tokens or where a logit was not finite
    """
    if len(nll) < LEAST or not (np.isfinite(nll).all() and np.isfinite(compared.kld).all()):
        return None
    return _perplexities(nll, compared.base_nll) | _divergences(compared.kld) | _probabilities(compared)


def _perplexities(nll: np.ndarray, base_nll: np.ndarray) -> dict[str, dict[str, float | None]]:
    (mean, error), (base, base_error) = _mean(nll), _mean(base_nll)
    covariance = float(np.cov(nll, base_nll, bias=True)[0, 1]) / (len(nll) - 1)
    ratio, ratio_error = mean - base, _root(error**2 + base_error**2 - 2 * covariance)
    ppl, base_ppl = np.exp(mean), np.exp(base)
    difference_error = _root((ppl * error) ** 2 + (base_ppl * base_error) ** 2 - 2 * ppl * base_ppl * covariance)
    spread = error * base_error
    return {
        "Mean PPL(Q)": _row(ppl, ppl * error),
        "Mean PPL(base)": _row(base_ppl, base_ppl * base_error),
        "Cor(ln(PPL(Q)), ln(PPL(base)))": _row(covariance / spread if spread else None),
        "Mean ln(PPL(Q)/PPL(base))": _row(ratio, ratio_error),
        "Mean PPL(Q)/PPL(base)": _row(np.exp(ratio), np.exp(ratio) * ratio_error),
        "Mean PPL(Q)-PPL(base)": _row(ppl - base_ppl, difference_error),
    }


def _divergences(kld: np.ndarray) -> dict[str, dict[str, float | None]]:
    quantiles = np.quantile(kld, list(KLD_ROWS.values()))
    rows = {f"{name} KLD": _row(value) for name, value in zip(KLD_ROWS, quantiles, strict=True)}
    return {"Mean KLD": _row(*_mean(kld)), **rows}


def _probabilities(compared: Divergence) -> dict[str, dict[str, float | None]]:
    delta, same = compared.delta_p, float(compared.same_top.mean())
    quantiles = np.quantile(delta, list(DELTA_ROWS.values()))
    square, square_error = _mean(delta**2)
    rms = np.sqrt(square)
    return {
        "Mean \u0394p": _row(*_mean(delta)),
        **{f"{name} \u0394p": _row(value) for name, value in zip(DELTA_ROWS, quantiles, strict=True)},
        "RMS \u0394p": _row(rms, 0.5 / rms * square_error if rms else 0.0),
        "Same top p": _row(same, np.sqrt(same * (1 - same) / (len(delta) - 1))),
    }


def _mean(values: np.ndarray) -> tuple[float, float]:
    """With its standard error, were the values independent."""
    return float(values.mean()), float(np.sqrt(values.var() / (len(values) - 1)))


def _root(variance: float) -> float:
    """The root of a difference of nearly equal terms, which rounding can take below zero."""
    return float(np.sqrt(max(0.0, variance)))


def _row(value: float | None, error: float | None = None) -> dict[str, float | None]:
    return {"value": None if value is None else float(value), "error": None if error is None else float(error)}
