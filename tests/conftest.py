"""Shared by all tests: one thread per process, and markers that skip where something is missing."""

import importlib.util
import os
import sys
from collections.abc import Iterator

# Before anything imports torch or numpy: tests run side by side, and each would take every core.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# Property tests take the same examples every time, so that a change is blamed for its own faults alone;
# `make test-slow` takes fresh ones (HYPOTHESIS_PROFILE=fresh).
settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

_NEEDED_PACKAGES = {"ray": ("ray",), "atari": ("ale_py",), "oracle": ("mctx", "jax")}


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def keep_denormals() -> Iterator[None]:
    """A run makes denormal numbers zero in its process; the next test begins with them."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose marker asks for a package or a device that is not there."""
    for marker, packages in _NEEDED_PACKAGES.items():
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            _skip(items, marker, f"needs {', '.join(missing)}")
    if any(item.get_closest_marker("gpu") for item in items) and not _has_cuda():
        _skip(items, "gpu", "needs a CUDA device")


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))
