import errno
import resource

import numpy as np
import pytest
from safetensors.numpy import load_file

from quant.safetensors.writer import save_arrays


def test_arrays_come_back(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.int8).reshape(2, 3), "b": np.ones(2, np.float32)}
    save_arrays(arrays, tmp_path / "x.safetensors")
    back = load_file(tmp_path / "x.safetensors")
    assert back.keys() == arrays.keys() and all(np.array_equal(back[name], arrays[name]) for name in arrays)


def test_a_refusal_of_the_system_is_an_os_error(tmp_path):
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        with pytest.raises(OSError) as caught:
            save_arrays({"a": np.zeros(1000)}, tmp_path / "x.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert caught.value.errno == errno.EFBIG
