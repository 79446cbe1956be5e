import pytest

from qbench.reference.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer()
