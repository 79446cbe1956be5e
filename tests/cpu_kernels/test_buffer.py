"""Small weights and keys share slabs of memory: no object sees another, and all memory is free again when they are."""

import subprocess
import sys

import gguf
import numpy as np
from support.close import assert_close
from support.q8_0 import random_q8_0
from support.waits import WAIT_S

import cpu_kernels

NUM_ROWS, ROW_SIZE = 320, 512  # 174 KB

FREED = """
import os, sys, numpy as np, cpu_kernels

def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

blocks = np.ones((2048, 34 * 16), np.uint8)  # 1.1 MB
cpu_kernels.PackedLinear("q8_0", {"blocks": blocks}, (2048, 512))  # threads and their memory are there
before = resident()
packed = [cpu_kernels.PackedLinear("q8_0", {"blocks": blocks}, (2048, 512)) for _ in range(200)]
held = resident() - before
assert 200 * blocks.nbytes <= held < 210 * blocks.nbytes, held
del packed
assert resident() - before < 10 * blocks.nbytes, resident() - before
"""

KEYS_FREED = """
import os, numpy as np, cpu_kernels

def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def layers() -> list[cpu_kernels.KVStore]:
    stores = [cpu_kernels.KVStore("int8", 1, 1024, 8, 64) for _ in range(16)]  # 1 MB each
    for store in stores:
        store.append(x, x, np.zeros((1, 1), np.int32), np.array([1024]))
    return stores

x = np.ones((1, 8, 1024, 64), np.float32)
kept = layers()  # in the same slab
before = resident()
for _ in range(10):
    layers()
held = resident() - before
assert held < 8 << 20, held
"""


def pack(blocks: np.ndarray) -> cpu_kernels.PackedLinear:
    return cpu_kernels.PackedLinear("q8_0", {"blocks": blocks}, (NUM_ROWS, ROW_SIZE))


def test_weights_of_a_slab_do_not_overlap():
    """More than a slab of 64 MB holds, half of them given up on the way."""
    blocks = [random_q8_0(NUM_ROWS, ROW_SIZE, seed) for seed in range(8)]
    kept = []
    for i in range(480):
        packed = pack(blocks[i % 8])
        if i % 2 == i // 8 % 2:
            kept.append((i % 8, packed))
    index = np.array([0, NUM_ROWS - 1])
    for seed, packed in kept:
        assert_close(packed.rows(index), gguf.dequantize(blocks[seed][index], gguf.GGMLQuantizationType.Q8_0))


def test_memory_equals_the_weights_and_is_given_back():
    subprocess.run([sys.executable, "-c", FREED], check=True, timeout=WAIT_S)


def test_memory_of_keys_is_given_back_while_others_stay():
    subprocess.run([sys.executable, "-c", KEYS_FREED], check=True, timeout=WAIT_S)
