"""The questions that a page may ask, as functions from checked JSON to JSON; nothing here knows HTTP."""

from collections.abc import Callable, Mapping
from typing import Any

from muzero.play.insight import compare_lines, tree_children
from muzero.play.refusal import Refusal
from muzero.play.session import Session
from muzero.play.view import view

MAX_MOVES = 10_000
Json = dict[str, Any]
Handler = Callable[[Session, "Fields"], Json]


class Fields:
    """The fields of a request: each is taken out with its type, and none may be left over."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def number(self, name: str) -> int:
        """A whole number that must be there."""
        value = self.optional_number(name)
        if value is None:
            raise Refusal("bad_value", f"{name} is missing: give a whole number")
        return value

    def optional_number(self, name: str) -> int | None:
        """A whole number, or None where it is absent or null."""
        value = self._values.pop(name, None)
        if value is None:
            return None
        if type(value) is not int or abs(value) > 2**53:
            raise Refusal("bad_value", f"{name} must be a whole number")
        return value

    def optional_word(self, name: str) -> str | None:
        """A string, or None where it is absent or null."""
        value = self._values.pop(name, None)
        if value is not None and (not isinstance(value, str) or len(value) > 100):
            raise Refusal("bad_value", f"{name} must be a short string")
        return value

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers; empty where it is absent."""
        values = self._values.pop(name, None)
        if values is None:
            return []
        if not isinstance(values, list) or any(type(value) is not int for value in values):
            raise Refusal("bad_value", f"{name} must be a list of whole numbers")
        if len(values) > MAX_MOVES:
            raise Refusal("bad_value", f"{name} has {len(values)} entries; {MAX_MOVES} are allowed")
        return values

    def end(self) -> None:
        """Raise Refusal if there are fields that nobody took."""
        if self._values:
            raise Refusal("bad_value", f"unknown field {sorted(self._values)[0][:100]!r}")


def _state(session: Session, fields: Fields) -> Json:
    ply = fields.optional_number("ply")
    fields.end()
    return view(session, ply)


def _record(session: Session, fields: Fields) -> Json:
    fields.end()
    return session.record()


def _tree(session: Session, fields: Fields) -> Json:
    version, ply, node = (fields.number(name) for name in ("version", "ply", "node"))
    fields.end()
    with session.lock:
        session.check_version(version)
        return tree_children(session, ply, node)


def _lines(session: Session, fields: Fields) -> Json:
    version, ply = fields.number("version"), fields.number("ply")
    fields.end()
    return compare_lines(session, version, ply)


def _new(session: Session, fields: Fields) -> Json:
    version, moves = fields.number("version"), fields.numbers("moves")
    fields.end()
    session.new_game(version, moves)
    return view(session)


def _settings(session: Session, fields: Fields) -> Json:
    version, side = fields.number("version"), fields.optional_word("side")
    step, simulations = fields.optional_number("step"), fields.optional_number("simulations")
    fields.end()
    session.change(version, side=side, step=step, num_simulations=simulations)
    return view(session)


def _move(session: Session, fields: Fields) -> Json:
    version, action = fields.number("version"), fields.number("action")
    fields.end()
    session.play(version, action)
    return view(session)


def _agent(session: Session, fields: Fields) -> Json:
    version = fields.number("version")
    fields.end()
    session.play_agent(version)
    return view(session)


def _undo(session: Session, fields: Fields) -> Json:
    version = fields.number("version")
    fields.end()
    session.undo(version)
    return view(session)


def _analyse(session: Session, fields: Fields) -> Json:
    version, ply = fields.number("version"), fields.optional_number("ply")
    fields.end()
    session.analyse(version, ply)
    return view(session, ply)


READS: dict[str, Handler] = {"state": _state, "record": _record, "tree": _tree, "lines": _lines}
"""What GET may ask for, under `/api/`; none of it changes the game."""
WRITES: dict[str, Handler] = {
    "new": _new,
    "settings": _settings,
    "move": _move,
    "agent": _agent,
    "undo": _undo,
    "analyse": _analyse,
}
"""What POST may ask for, under `/api/`."""
