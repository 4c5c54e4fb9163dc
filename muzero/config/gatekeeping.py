"""Checks of the section `gatekeeping`."""

from collections.abc import Iterator

from muzero.config.schema import Config


def gatekeeping_problems(config: Config, num_players: int | None) -> Iterator[str]:
    """What keeps a candidate from being judged, one sentence each.

    Args:
        num_players: Of the environment; None where unknown.
    """
    gate = config.gatekeeping
    if gate.interval == 0:
        return
    name = f"gatekeeping.interval is {gate.interval}"
    if config.env.kind != "open_spiel":
        yield (
            f"{name}, but env.kind is {config.env.kind!r}: candidates are judged by matches at OpenSpiel's games for two "
            "players; set the interval to 0"
        )
    elif num_players == 1:
        yield (
            f"{name}, but this environment has one player: there is no match by which a candidate could be judged; set the "
            "interval to 0"
        )
    if gate.games % 2 == 1:
        yield (
            f"gatekeeping.games is {gate.games}; it must be even, since every opening is played once in each seat: take "
            f"{gate.games + 1}"
        )
    age = config.replay.max_behaviour_age
    if age is not None:
        yield (
            f"replay.max_behaviour_age is {age} while {name}: while candidates are rejected, what is played with the accepted "
            "weights would soon be too old to be sampled, and training stand still; set max_behaviour_age to null"
        )
