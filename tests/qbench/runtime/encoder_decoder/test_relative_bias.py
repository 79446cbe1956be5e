"""Buckets of relative positions, by hand and by their properties."""

import pytest
import torch

from qbench.runtime.encoder_decoder.relative_bias import RelativeBias, bucket


def test_near_distances_have_a_bucket_each_and_far_ones_share():
    places = bucket(torch.arange(200), 8, 20)
    assert places[:4].tolist() == [0, 1, 2, 3]
    assert places[4:].diff().min() == 0 and places.diff().max() == 1  # ever farther, no bucket left out
    # 4 buckets over a factor of 20 / 4: each takes a factor of 5 ** (1 / 4) = 1.495, so they end below 5.98, 8.94, 13.4
    assert [places[n].item() for n in (5, 6, 8, 9, 13, 14, 20, 199)] == [4, 5, 5, 6, 6, 7, 7, 7]


def test_an_encoder_distinguishes_before_from_after():
    table = torch.arange(8.0)[:, None]  # each bias says its bucket
    bias = RelativeBias(table, 20, is_two_way=True)(3, 3)[0, 0]
    assert bias.tolist() == [[0, 5, 6], [1, 0, 5], [2, 1, 0]]


@pytest.mark.parametrize("num_queries", [1, 2, 5])
def test_a_decoder_hides_later_tokens(num_queries):
    bias = RelativeBias(torch.randn(8, 2), 20, is_two_way=False)
    whole, last = bias(5, 5), bias(num_queries, 5)
    assert torch.equal(last, whole[:, :, -num_queries:])
    assert torch.equal(whole[0, 0] == -torch.inf, torch.ones(5, 5).triu(1).bool())
