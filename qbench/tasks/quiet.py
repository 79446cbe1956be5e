"""lm-eval without its own bars and notices: this project shows progress in one place, and errors in one line."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partialmethod
from unittest.mock import patch

from tqdm import tqdm


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block lm-eval draws no bars, logs errors alone, and its output goes to stderr."""
    import datasets

    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    bars = datasets.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        with redirect_stdout(sys.stderr), _no_bars():
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            datasets.enable_progress_bars()


def _no_bars():
    """Every bar of `tqdm` is disabled: tasks draw their own, and the switch in the environment is read too early."""
    return patch.object(tqdm, "__init__", partialmethod(tqdm.__init__, disable=True))
