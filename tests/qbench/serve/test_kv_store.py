"""Servers over one folder of prefixes: one after the other, at once, and with a folder that fails."""

import os
from pathlib import Path

import pytest
from support import patient
from support.tiny_server import running, tiny_subject

from qbench.runtime.engine import EngineOptions, StoreOptions

OPTIONS = EngineOptions(num_pages=128, max_batch=4)
ASKED = {"model": "tiny", "temperature": 0, "max_tokens": 12, "prompt": "Once upon a time there was a king. " * 6}
FULL_PAGES = (len(ASKED["prompt"]) + 1) // 16  # one token per byte, and the first


def answer(server, **salt: str) -> str:
    return server.client().completions.create(**ASKED, extra_body=salt).choices[0].text


def counted(server, name: str) -> float:
    stats = server.served.engine._engine.stats()
    return stats.store.to_json()[name]


@pytest.fixture(scope="module")
def text() -> str:
    with running(tiny_subject(), OPTIONS) as server:
        return answer(server)


def test_a_restarted_server_finds_the_prefix_and_answers_the_same(tmp_path, text):
    store = StoreOptions(tmp_path)
    with running(tiny_subject(), OPTIONS, store=store) as server:
        assert answer(server) == text
        assert counted(server, "hits") == 0
    with running(tiny_subject(), OPTIONS, store=store) as server:
        assert answer(server) == text
        assert answer(server, cache_salt="other") == text
        metrics = server.metrics()
        assert (counted(server, "hits"), counted(server, "hit_tokens")) == (1, 16 * FULL_PAGES)
        assert counted(server, "loaded_bytes") > 0 and counted(server, "errors") == 0
    assert {"qbench_kv_store_hits_total", "qbench_kv_store_saved_seconds", "qbench_kv_store_errors_total"} <= set(
        metrics
    )


def test_two_servers_share_the_folder(tmp_path, text):
    store = StoreOptions(tmp_path)
    with running(tiny_subject(), OPTIONS, store=store) as one, running(tiny_subject(), OPTIONS, store=store) as other:
        assert answer(one) == text
        while counted(one, "waiting_blocks"):
            continue
        assert answer(other) == text
        assert counted(other, "hits") == 1


def test_deleted_prefixes_are_deleted_on_the_disk(tmp_path, text):
    store = StoreOptions(tmp_path)
    with running(tiny_subject(), OPTIONS, store=store) as server:
        for salt in ("a", "b"):
            answer(server, cache_salt=salt)
    with running(tiny_subject(), OPTIONS, store=store) as server:
        assert patient.delete(f"{server.url}/v1/prefixes", params={"cache_salt": "a"}).status_code == 204
    with running(tiny_subject(), OPTIONS, store=store) as server:
        assert answer(server, cache_salt="a") == text and counted(server, "hits") == 0
        assert answer(server, cache_salt="b") == text and counted(server, "hits") == 1


def test_a_failing_store_is_reported_once_and_serving_goes_on(tmp_path, text, caplog):
    (tmp_path / "file").write_text("")
    with running(tiny_subject(), OPTIONS, store=StoreOptions(tmp_path / "file" / "folder")) as server:
        for salt in ("a", "b"):
            assert answer(server, cache_salt=salt) == text
    assert [message for message in caplog.messages if "keys and values" in message] == caplog.messages[:1]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_files_are_computed_again(tmp_path, text, damage):
    store = StoreOptions(tmp_path)
    with running(tiny_subject(), OPTIONS, store=store) as server:
        answer(server)
    for path in _blocks(tmp_path)[::3]:
        data = bytearray(path.read_bytes())
        data[4100] ^= 1
        path.write_bytes(data[: 4096 if damage == "cut" else None])
    with running(tiny_subject(), OPTIONS, store=store) as server:
        assert answer(server) == text
        assert counted(server, "corrupt_blocks") == 1 and counted(server, "hits") == 0


def test_a_model_with_other_weights_finds_nothing(tmp_path, caplog):
    with running(tiny_subject(), OPTIONS, store=StoreOptions(tmp_path)) as server:
        answer(server)
    with running(tiny_subject(context=1024), OPTIONS, store=StoreOptions(tmp_path)) as server:
        answer(server)
        assert counted(server, "hits") == 0
    assert sum("not read" in message for message in caplog.messages) == 1


def _blocks(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("qbench-kv*/*/*") if os.path.isfile(path))
