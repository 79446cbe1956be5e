"""NVML's facts of cards, by a library with its functions, and the machine's id with and without them."""

import shutil
import subprocess

import pytest

from qbench.measure.host import machine as machine_module
from qbench.measure.host.machine import GraphicsCard, graphics_cards

CARDS = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "580.1"); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = (void *)1; return 0; }
int nvmlDeviceGetName(void *card, char *text, unsigned size) { strcpy(text, "NVIDIA H200"); return 0; }
int nvmlDeviceGetMemoryInfo(void *card, unsigned long long *memory) { memory[0] = 139ull << 30; return 0; }
int nvmlDeviceGetMaxClockInfo(void *card, int kind, unsigned *mhz) { *mhz = 1980; return kind == 2 ? 3 : 0; }
"""


def test_a_card(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to make a library with")
    source, made = tmp_path / "cards.c", tmp_path / "libcards.so"
    source.write_text(CARDS)
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", made], check=True)
    clocks = {"processors": 1980, "memory": None}  # None: the card does not report it
    card = {"name": "NVIDIA H200", "memory_gib": 139, "driver": "580.1", "clocks_mhz": clocks}
    assert [one.to_json() for one in graphics_cards(str(made))] == [card]


def test_without_the_library():
    assert graphics_cards("libno-such-cards.so") == []


def test_a_card_makes_another_machine_but_its_driver_does_not_count(monkeypatch):
    def machine(cards):
        monkeypatch.setattr(machine_module, "graphics_cards", lambda: [GraphicsCard.from_json(card) for card in cards])
        return machine_module.machine.__wrapped__().to_json()

    card = {"name": "NVIDIA H200", "memory_gib": 139, "driver": "580.1", "clocks_mhz": {}}
    without, with_card, updated = machine([]), machine([card]), machine([card | {"driver": "590.2"}])
    assert "gpus" not in without and with_card["gpus"] == ["NVIDIA H200, 139 GiB"]
    assert without["id"] != with_card["id"] == updated["id"]
    assert updated["graphics_cards"][0]["driver"] == "590.2"
