import numpy as np
import pytest
import torch
from support.close import assert_close
from support.random_linear import WRITTEN, random_qtensor

from qbench.runtime.layers.embedding import Embedding, StoredTable
from quant.errors import InputError
from quant.formats import dequantize


@pytest.mark.parametrize("format_name", WRITTEN)
def test_stored_rows_are_the_dequantized(format_name):
    qtensor = random_qtensor(format_name, 9, 256)
    table, expected = StoredTable(qtensor), dequantize(qtensor)
    for index in ([4], [8, 0, 0, 3], []):
        assert_close(table.rows(np.array(index, dtype=np.int64)), expected[index])


def test_embedding_keeps_the_shape_of_its_tokens():
    qtensor = random_qtensor("q8_0", 9, 64)
    tokens = torch.tensor([[1, 8, 0], [3, 3, 2]])
    assert_close(Embedding(StoredTable(qtensor), 9)(tokens, torch.arange(3)), dequantize(qtensor)[tokens.numpy()])


@pytest.mark.parametrize("token", [-1, 9])
def test_an_id_outside_the_vocabulary(token):
    with pytest.raises(InputError, match="expected 0 to 8"):
        Embedding(StoredTable(random_qtensor("q8_0", 9, 64)), 9)(torch.tensor([[2, token]]), torch.arange(2))
