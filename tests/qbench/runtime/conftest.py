import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """Models this small gain nothing from threads, whose barriers crawl where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
