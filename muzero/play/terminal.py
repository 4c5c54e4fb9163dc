"""A game in the terminal: the board as text, moves by OpenSpiel's name or number."""

import json
from collections.abc import Callable

from muzero.play.insight import root_moves
from muzero.play.refusal import Refusal
from muzero.play.session import Session

HELP = """\
a move: its name or its number (m lists them)
u undo   h hint (what the search says)   m moves   n new game   r record   s first|second|both|watch
q quit   ? this list   an empty line lets the agent go on, where you watch"""


class Terminal:
    """Reads lines and prints until the person quits or input ends.

    Args:
        ask: Shows a prompt and returns a line; raises EOFError where there are no more.
        show: Prints a text.
    """

    def __init__(
        self,
        session: Session,
        ask: Callable[[str], str] = input,
        show: Callable[[str], None] = print,
    ) -> None:
        self.session, self._ask, self._show = session, ask, show

    def run(self) -> None:
        """Play."""
        self._show(HELP)
        self._draw()
        while True:
            session = self.session
            over = session.position.is_over
            if not over and not session.is_persons_turn and session.side != "watch":
                self._agent_moves()
                continue
            try:
                line = self._ask(self._prompt(over)).strip()
            except EOFError:
                return
            if line in ("q", "quit", "exit"):
                return
            try:
                self._do(line)
            except Refusal as refusal:
                self._show(f"{refusal}")

    def _prompt(self, over: bool) -> str:
        if over:
            return "game over (n new, u undo, r record, q quit)> "
        if self.session.side == "watch":
            return "Enter for the next move> "
        return f"player {self.session.position.to_play}, your move> "

    def _do(self, line: str) -> None:
        session = self.session
        word, _, rest = line.partition(" ")
        if line == "" and session.side == "watch" and not session.position.is_over:
            self._agent_moves()
        elif line in ("", "?", "help"):
            self._show(HELP)
        elif line in ("u", "undo"):
            session.undo(session.version)
            self._draw()
        elif line in ("h", "hint"):
            self._hint()
        elif line in ("m", "moves"):
            self._show("  ".join(f"{action}:{name}" for action, name in session.legal_moves()))
        elif line in ("n", "new"):
            session.new_game(session.version)
            self._draw()
        elif line in ("r", "record"):
            self._show(json.dumps(session.record()))
        elif word in ("s", "side"):
            session.change(session.version, side=rest.strip())
            self._draw()
        else:
            session.play(session.version, self._action(line))
            self._draw()

    def _action(self, text: str) -> int:
        """The legal action that a text names; raises Refusal if there is none, or more than one."""
        moves = self.session.legal_moves()
        if not moves:
            raise Refusal("game_over", "the game is over")
        for matches in (
            [action for action, name in moves if name == text],
            [action for action, name in moves if name.lower() == text.lower()],
            [action for action, _ in moves if str(action) == text],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise Refusal("illegal_move", f"{text!r} names the moves {matches}; give a number")
        raise Refusal("illegal_move", f"{text!r} is no legal move here; m lists them, ? tells more")

    def _agent_moves(self) -> None:
        session = self.session
        analysis = session.play_agent(session.version)
        cut = "" if analysis.made == analysis.planned else f" of {analysis.planned}"
        self._show(
            f"agent (player {analysis.to_play}) plays {session.moves[-1].name}: value {analysis.value:+.3f}, "
            f"{analysis.made}{cut} simulations"
        )
        self._draw()

    def _hint(self) -> None:
        session = self.session
        analysis = session.analyse(session.version)
        lines = [
            f"value {analysis.value:+.3f} (network alone {analysis.network_value:+.3f}), seen by player {analysis.to_play}; "
            f"{analysis.made} simulations with the weights of step {analysis.step}",
            f"{'move':>12} {'number':>6} {'prior':>6} {'visits':>6} {'q':>7} {'policy':>6}  line imagined",
        ]
        for move in root_moves(session, session.position)[:16]:
            line = " ".join(
                step["name"] if step["status"] == "legal" else f"({step['name']})"
                for step in move.get("line", [])
            )
            q = f"{move['q']:+.3f}" if move["visits"] else "-"
            star = "*" if move["best"] else " "
            lines.append(
                f"{star}{move['name']:>11} {move['action']:6d} {move['prior']:6.3f} {move['visits']:6d} {q:>7} "
                f"{move['policy']:6.3f}  {line}"
            )
        self._show("\n".join(lines))

    def _draw(self) -> None:
        session = self.session
        self._show("\n" + session.position.board.as_text() + "\n")
        if session.position.is_over:
            returns = session.position.state.returns()
            self._show("result: " + ", ".join(f"player {i} {x:+g}" for i, x in enumerate(returns)))
