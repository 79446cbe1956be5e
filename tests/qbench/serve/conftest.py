import pytest
from support.tiny_server import running, tiny_subject

from qbench.runtime.engine import EngineOptions


@pytest.fixture(scope="module")
def server():
    with running(tiny_subject(), EngineOptions(num_pages=128, max_batch=8)) as it:
        yield it
