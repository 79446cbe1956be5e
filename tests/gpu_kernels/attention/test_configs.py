"""Tables of tile shapes of the attention kernels: the lookup of an architecture that has no row."""

import pytest
import torch

from gpu_kernels.attention import key_mass_triton, mla_decode_triton, paged_decode_triton, prefill_configs

LOOKUPS = {
    "prefill": lambda: prefill_configs.row("paged_prefill", 86, "16 bit"),
    "mla_decode": lambda: mla_decode_triton.row(86, False, 16),
    "key_mass": lambda: key_mass_triton.row(86, False, 128, 4),
    "paged_decode": lambda: paged_decode_triton.row(86, torch.float16, 128, 4),
}


@pytest.mark.parametrize("op", LOOKUPS)
def test_unknown_architecture_lists_the_known(op):
    with pytest.raises(NotImplementedError, match=r"got sm_86, expected one of \['sm_80', 'sm_90', 'sm_100'\]"):
        LOOKUPS[op]()
