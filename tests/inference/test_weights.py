import json
import threading

import pytest
import torch
from safetensors.torch import save_file

from muzero.config.networks import MLPConfig
from muzero.network import NetworkSpec, make_network
from muzero.weights import WeightStore, load_weights, save_weights


def state_of(value: float) -> dict[str, torch.Tensor]:
    return {"layer.weight": torch.full((3, 2), value), "counter": torch.tensor(7)}


def test_only_newer_weights_are_handed_out():
    store = WeightStore()
    assert store.version is None
    assert store.pull_if_newer(None) is None
    assert store.pull_if_newer(-1) is None
    assert store.publish(0, state_of(1.0))
    assert store.pull_if_newer(0) is None
    version, state = store.pull_if_newer(-1)
    assert (version, store.version) == (0, 0)
    assert torch.equal(state["layer.weight"], torch.full((3, 2), 1.0))


def test_a_repeated_or_late_message_changes_nothing():
    store = WeightStore()
    assert store.publish(5, state_of(5.0))
    assert not store.publish(5, state_of(6.0))
    assert not store.publish(4, state_of(4.0))
    version, state = store.pull_if_newer(None)
    assert version == 5
    assert state["layer.weight"][0, 0].item() == 5.0


def test_published_weights_do_not_follow_the_learner():
    source = state_of(1.0)
    store = WeightStore()
    store.publish(0, source)
    source["layer.weight"].fill_(9.0)
    _, state = store.pull_if_newer(None)
    assert state["layer.weight"][0, 0].item() == 1.0
    transposed = {"w": torch.arange(6.0).view(2, 3).t()}
    store.publish(1, transposed)
    assert store.pull_if_newer(0)[1]["w"].is_contiguous()


def test_a_reader_beside_the_writer_never_sees_a_mixture():
    store = WeightStore()
    store.publish(0, state_of(0.0))
    mixtures = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            version, state = store.pull_if_newer(None)
            if not bool((state["layer.weight"] == version).all()):
                mixtures.append(version)

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(1, 300):
        store.publish(version, state_of(float(version)))
    done.set()
    reader.join()
    assert mixtures == []


def test_a_file_brings_back_network_and_settings(tmp_path):
    spec = {"observation_shape": [4], "num_actions": 2}
    network = make_network(MLPConfig(), NetworkSpec(observation_shape=(4,), num_actions=2), 0)
    path = tmp_path / "weights.safetensors"
    save_weights(path, network.state_dict(), version=12, config={"kind": "mlp"}, spec=spec)
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]
    weights = load_weights(path)
    assert (weights.version, weights.config, weights.spec) == (12, {"kind": "mlp"}, spec)
    assert weights.state.keys() == network.state_dict().keys()
    for name, value in network.state_dict().items():
        assert torch.equal(weights.state[name], value)


def test_a_damaged_or_foreign_file_is_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_weights(path, state_of(1.0), version=0, config={}, spec={})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"weights\.safetensors is not a file of weights"):
        load_weights(path)
    save_file(state_of(1.0), path)
    with pytest.raises(ValueError, match="is not a file of weights"):
        load_weights(path)
    save_file(state_of(1.0), path, {"version": "1", "config": "{", "spec": json.dumps({})})
    with pytest.raises(ValueError, match="is not a file of weights"):
        load_weights(path)
