"""Special files and links in place of files: refused in a moment, never read."""

import os
import socket
from pathlib import Path

import pytest
from support.artifact import write_artifact
from support.memory_source import MemorySource

from quant.artifacts.hf_reader import CONFIG, HFSource
from quant.errors import InputError
from quant.json_file import read_json
from quant.regular_file import check_links, open_regular, read_regular, read_regular_text
from quant.yaml_file import read_yaml


def test_a_regular_file_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("na\u00efve\r\n".encode())
    assert read_regular(path, 8) == path.read_bytes() and read_regular_text(path) == path.read_text()
    assert int(read_regular("/proc/self/stat", 1 << 16).split()[0]) == os.getpid(), "its size says 0"
    with open_regular(path) as file:
        assert os.get_inheritable(file.fileno()) is False


@pytest.mark.parametrize("kind", ["fifo", "device", "link to a device", "socket", "folder", "large", "missing"])
def test_other_files_are_refused_by_name(tmp_path, kind):
    path, reason = tmp_path / "file", ""
    if kind == "fifo":
        os.mkfifo(path)
        reason = "it is a FIFO, expected a regular file"
    elif kind == "device":
        path, reason = Path("/dev/zero"), "it is a character device, expected a regular file"
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
        reason = "it is a character device, expected a regular file"
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
        reason = "No such device or address"
    elif kind == "folder":
        path.mkdir()
        reason = "Is a directory"
    elif kind == "large":
        path.touch()
        os.truncate(path, 1 << 40)  # without a block on the disk
        reason = "it has 1099511627776 bytes, expected at most 1048576"
    else:
        reason = "No such file or directory"
    for read in (open_regular, read_regular, read_regular_text):
        with pytest.raises(OSError) as refusal:
            read(path, 1 << 20)
        assert refusal.value.strerror == reason


@pytest.mark.parametrize("read", [read_json, lambda path: read_yaml(path, "recipe")], ids=["JSON", "YAML"])
def test_documents_of_a_terabyte_are_not_read(tmp_path, read):
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(InputError, match="1099511627776 bytes, expected at most"):
        read(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_of_special_files(tmp_path, name):
    folder = write_artifact(MemorySource(), tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match="it is a FIFO, expected a regular file"):
        HFSource(folder)


def test_weights_that_never_end(tmp_path):
    folder = write_artifact(MemorySource(), tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="it is a character device, expected a regular file"):
        HFSource(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja"])
@pytest.mark.parametrize("target", ["../secret", "/etc/hostname", "/dev/zero"])
def test_a_link_out_of_the_directory_publishes_nothing(tmp_path, name, target):
    folder = write_artifact(MemorySource(), tmp_path / "model")
    (tmp_path / "secret").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    with pytest.raises(InputError, match=f"{name}: a link to .*, outside the directory; put a copy of the file there"):
        HFSource(folder)


def test_links_inside_the_directory_and_to_the_hubs_blobs(tmp_path):
    real = write_artifact(MemorySource(), tmp_path / "real")
    inside = tmp_path / "inside"
    real.rename(inside)
    (inside / CONFIG).rename(inside / "other.json")
    (inside / CONFIG).symlink_to("other.json")
    (tmp_path / "linked").symlink_to(inside)
    assert HFSource(tmp_path / "linked").config == HFSource(inside).config
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / "0123"
    blobs = snapshot.parents[1] / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(path for path in inside.iterdir() if path.is_file()):
        (blobs / str(number)).write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert HFSource(snapshot).config == HFSource(inside).config


def test_a_folder_with_a_similar_name_is_outside(tmp_path):
    for name in ("model", "models"):
        (tmp_path / name).mkdir()
    (tmp_path / "models" / "x").touch()
    (tmp_path / "model" / "x").symlink_to("../models/x")
    with pytest.raises(InputError, match="outside the directory"):
        check_links(tmp_path / "model", ["x"])
