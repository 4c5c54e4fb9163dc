"""What the weight store hands out, with and without gatekeeping; Ray's object store is a list here."""

import numpy as np
import pytest

from muzero.runtime.fleet import actors
from muzero.runtime.fleet.actors import WeightStoreActor


@pytest.fixture
def make(monkeypatch):
    objects: list = []

    def put(value):
        objects.append(value)
        return f"object {len(objects) - 1}"

    monkeypatch.setattr(actors.ray, "put", put)
    monkeypatch.setattr(actors.ray, "get", lambda name: objects[int(name.split()[1])])
    monkeypatch.setattr(actors.signal, "signal", lambda *_: None)  # this process heeds its own
    return WeightStoreActor


def weights(version: int) -> dict[str, np.ndarray]:
    return {"w": np.full(3, version, np.float32)}


def test_without_gatekeeping_the_newest_are_handed_out(make):
    store = make(False)
    assert store.pull(None) is None and store.newest() is None
    for version in (0, 4, 9):
        assert store.publish(version, weights(version))
    assert not store.publish(9, weights(9)) and not store.publish(3, weights(3))
    assert store.pull(None) == store.pull(4) == (9, "object 2")
    assert store.pull(9) is None
    version, newest = store.newest()
    assert version == 9 and newest["w"][0] == 9


def test_with_gatekeeping_the_accepted_are_handed_out_however_many_newer_ones_come(make):
    store = make(True)
    store.publish(0, weights(0))
    assert store.pull(None) is None and store.version() == 0
    store.accept(0, ["accepted 0"])
    for version in range(1, 50):
        store.publish(version, weights(version))
        assert store.pull(None) == (0, "accepted 0")
        assert store.pull(0) is None
    assert store.version() == 49 and store.newest()[1]["w"][0] == 49
    store.accept(30, ["accepted 30"])
    assert store.pull(0) == store.pull(None) == (30, "accepted 30")
    assert store.pull(30) is None


def test_a_store_made_anew_waits_for_what_was_accepted(make):
    store = make(True)
    store.publish(50, weights(50))
    assert store.pull(30) is None and store.pull(None) is None
    store.accept(30, ["accepted 30"])
    assert store.pull(None) == (30, "accepted 30")
