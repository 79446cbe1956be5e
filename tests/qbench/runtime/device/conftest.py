import pytest
import torch
from support.device_run import Run
from support.interpreted import INTERPRETER_IS_BROKEN, interpreting_process

needs_gpu = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: interpreted only"),
]


@pytest.fixture(scope="module", params=["interpreter", pytest.param("cuda", marks=needs_gpu)])
def run(request):
    """(function, source) -> the result of the function for the source on the device, in a process that has it."""
    if request.param == "cuda":
        yield Run("cuda", None)
        return
    if INTERPRETER_IS_BROKEN:
        pytest.skip("the interpreter of this Triton cannot loop with this NumPy")
    with interpreting_process() as pool:
        yield Run(request.param, pool)
