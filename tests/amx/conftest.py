import pytest
from support import amx


@pytest.fixture(scope="session")
def emulator(tmp_path_factory):
    """The emulator as a library to preload."""
    if reason := amx.unavailable():
        pytest.skip(reason)
    return amx.build(tmp_path_factory.mktemp("amx") / "libamx.so", amx.SOURCES, "-shared", "-fPIC")
