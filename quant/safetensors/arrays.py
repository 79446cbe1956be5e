"""Safetensors files of arrays that are all in memory."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes the arrays under their names.

    raises   OSError if the disk does not take them, which safetensors reports only in words
    """
    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(path)) from error
