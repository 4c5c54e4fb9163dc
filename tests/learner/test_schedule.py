import math

import pytest

from muzero.config.schema import LearnerConfig
from muzero.learner.schedule import cosine, learning_rate


def rates(steps, **settings):
    config = LearnerConfig(num_steps=100, learning_rate=0.2, **settings)
    return [learning_rate(config, step) for step in steps]


def test_constant():
    assert rates([0, 50, 1000], schedule="constant") == [0.2, 0.2, 0.2]


def test_cosine_has_its_closed_form_and_stays_at_its_end():
    expected = [0.2, 0.2 * 0.5 * (1 + math.cos(math.pi / 4)), 0.1, 0.0, 0.0]
    assert rates([0, 25, 50, 100, 250], schedule="cosine") == pytest.approx(expected, abs=1e-17)
    ends = rates([0, 50, 100], schedule="cosine", final_learning_rate_fraction=0.1)
    assert ends == pytest.approx([0.2, 0.11, 0.02])


def test_step_decays_by_its_rate():
    settings = {"schedule": "step", "decay_steps": 30, "decay_rate": 0.5}
    assert rates([0, 29, 30, 59, 60, 90], **settings) == [0.2, 0.2, 0.1, 0.1, 0.05, 0.025]


@pytest.mark.parametrize("schedule", ["constant", "cosine", "step"])
def test_warm_up_rises_linearly_and_wastes_no_update(schedule):
    warm = rates(range(4), schedule=schedule, warmup_steps=4)
    assert warm == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_the_cosine_begins_behind_the_warm_up():
    first, middle, last = rates([20, 60, 100], schedule="cosine", warmup_steps=20)
    assert (first, middle, last) == pytest.approx((0.2, 0.1, 0.0), abs=1e-17)


def test_a_warm_up_longer_than_the_run_never_divides_by_zero():
    assert rates([99, 100], schedule="cosine", warmup_steps=100)[0] == pytest.approx(0.2)
    assert cosine(0, 0, 0.25) == 0.25


def test_an_unknown_schedule_is_named():
    with pytest.raises(ValueError, match=r"learner.schedule is 'linear'; choose one of constant"):
        rates([0], schedule="linear")
