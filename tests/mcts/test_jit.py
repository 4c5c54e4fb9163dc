"""Kernels on disk are used again, but not when anything that they are made of has changed."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from mcts import jit
from muzero.inference import emit


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kernel_is_compiled_anew_when_the_sources_have_changed(tmp_path, monkeypatch):
    path = tmp_path / "some_kernel.py"
    path.write_text(
        "from mcts.jit import kernel\n\n\n@kernel\ndef twice(number):\n    return 2 * number\n"
    )

    def hits_and_misses():
        function = load(path).twice
        assert function(21) == 42
        return sum(function.stats.cache_hits.values()), sum(function.stats.cache_misses.values())

    assert hits_and_misses() == (0, 1)
    assert hits_and_misses() == (1, 0)
    monkeypatch.setattr(jit, "_sources", lambda: "another digest")
    assert hits_and_misses() == (0, 1)
    assert hits_and_misses() == (1, 0)


@pytest.mark.parametrize(
    ("name", "is_watched"),
    [
        ("layout", True),
        ("vectors", True),
        ("reductions", True),
        ("jit", True),
        ("puct_choice", True),
        ("forced", True),
        ("export", False),
    ],
)
def test_digest_is_that_of_all_files_with_kernels(tmp_path, name, is_watched):
    for path in Path(jit.__file__).parent.glob("*.py"):
        shutil.copy(path, tmp_path)
    before = load(tmp_path / "jit.py")._sources()
    assert before == jit._sources()
    with (tmp_path / f"{name}.py").open("a") as file:
        file.write("# changed\n")
    assert (load(tmp_path / "jit.py")._sources() != before) == is_watched


@pytest.mark.parametrize(
    ("name", "is_watched"),
    [
        ("emit", True),
        ("jobs", True),
        ("runs", True),
        ("functions", True),
        ("mlp_kernels", True),
        ("resnet_kernels", True),
        ("local", False),
    ],
)
def test_kernels_of_inference_are_watched_in_the_same_way(tmp_path, name, is_watched):
    for path in Path(emit.__file__).parent.glob("*.py"):
        shutil.copy(path, tmp_path)
    before = load(tmp_path / "emit.py")._sources()
    with (tmp_path / f"{name}.py").open("a") as file:
        file.write("# changed\n")
    assert (load(tmp_path / "emit.py")._sources() != before) == is_watched


def test_a_kernel_of_inference_is_compiled_anew_when_its_sources_have_changed(
    tmp_path, monkeypatch
):
    path = tmp_path / "some_kernel.py"
    path.write_text(
        "from muzero.inference.emit import kernel\n\n\n@kernel\ndef twice(number):\n    return 2 * number\n"
    )

    def misses():
        function = load(path).twice
        assert function(21) == 42
        return sum(function.stats.cache_misses.values())

    assert [misses(), misses()] == [1, 0]
    monkeypatch.setattr(emit, "_sources", lambda: "another digest")
    assert [misses(), misses()] == [1, 0]


def test_every_kernel_of_the_package_stands_in_a_watched_file():
    for path in Path(jit.__file__).parent.glob("*.py"):
        source = path.read_text()
        if "@kernel" in source or "@inlined" in source or "njit" in source:
            assert "mcts.jit" in source or path.stem == "jit", path
