from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.calibration.open_subject import WatchedSource


def test_a_watched_source_equals_its_source_and_reports_every_read():
    config = small_config()
    source = ArraySource(config, random_weights(config))
    told = []
    watched = WatchedSource(source, lambda *state: told.append(state))
    assert (watched.spec, watched.config, watched.tokenizer) == (source.spec, source.config, source.tokenizer)
    assert watched.tensors == source.tensors and watched.fingerprint() == source.fingerprint()
    total = len(source.tensors)
    for name in source.tensors:
        assert watched.read(name) is source.read(name)
    assert told == [(i + 1, total, "loading") for i in range(total)]
