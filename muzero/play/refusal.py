"""What a player may not do, told in a way that a program and a person understand."""


class Refusal(ValueError):
    """A request that cannot be met, and why.

    Args:
        code: One word for programs: `illegal_move`, `stale`, `wrong_turn`, `game_over`, `nothing_to_undo`, `unknown`,
            `bad_value`, `busy`, or a code of the web server.
        message: A sentence for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
