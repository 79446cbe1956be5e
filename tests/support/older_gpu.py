"""Kernels as an older GPU gets them."""

from unittest import mock

from gpu_kernels import launch


def as_sm_80(call, *args, **kwargs):
    """call(...), with every kernel under the impression that it runs on sm_80; the interpreter is asked as a GPU is."""
    with mock.patch.object(launch, "INTERPRETED_AS", 80), mock.patch.object(launch, "compute_capability", lambda _: 80):
        return call(*args, **kwargs)
