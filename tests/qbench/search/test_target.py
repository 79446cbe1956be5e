"""The text of a target."""

import math

import pytest

from qbench.search.target import parse_target
from quant.errors import InputError


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("4.5bpw", 4500), ("3.2GiB", int(3.2 * 2**30)), ("700MiB", 700 * 2**20), ("2 kB", 2000), ("16b", 16)],
)
def test_budget_is_read_in_bits_or_bytes(text, num_bytes):
    assert parse_target(text).budget_bytes(8000, 0) == num_bytes


def test_a_size_in_bytes_counts_the_head_of_the_file():
    assert parse_target("5000B").budget_bytes(8000, 700) == 4300
    assert parse_target("4.5bpw").budget_bytes(8000, 700) == 4500


@pytest.mark.parametrize(
    "text", ["", "4.5", "bpw", "-4bpw", "0bpw", "4 bits", "4.5bpw and more", "3.2TiBs", "nanbpw", "0tok/s", "4bpw,"]
)
def test_no_target(text):
    with pytest.raises(InputError, match="expected bits per weight or bytes"):
        parse_target(text)


@pytest.mark.parametrize("text", ["25tok/s", "25 TOK/s , 4bpw", "4bpw,25tok/s"])
def test_a_speed(text):
    target = parse_target(text)
    assert target.step_seconds == 1 / 25
    assert target.budget_bytes(8000, 0) == (4000 if "bpw" in text else None)


def test_any_speed():
    assert parse_target("4bpw").step_seconds == math.inf


@pytest.mark.parametrize(
    ("text", "says"), [("4bpw,5bpw", "two sizes"), ("4bpw,1GiB", "two sizes"), ("2tok/s,3tok/s", "two speeds")]
)
def test_contradictory_targets_are_refused(text, says):
    with pytest.raises(InputError, match=says):
        parse_target(text)
