"""`muzero-check-env`: is an environment fit to be trained on?"""

import sys
from collections.abc import Sequence

from muzero.config.cli import fail


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command: `muzero-check-env env=gym env.id=my_games:MyGame-v0`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or {"-h", "--help"} & set(given):
        print(
            "muzero-check-env env=<kind> [env.<setting>=<value> ...]\n\n"
            "Play random games of an environment and report what is wrong with it. Settings are those of muzero-train:\n"
            "  muzero-check-env env=open_spiel env.game=hex env.parameters.board_size=5\n"
            "  muzero-check-env env=gym env.id=my_games:MyGame-v0 env.num_players=2"
        )
        return
    from muzero.config.compose import compose
    from muzero.envs.check import check_env

    try:
        config = compose(given)
        problems = check_env(config.env)
    except ValueError as error:
        fail(str(error))
    for problem in problems:
        print(f"- {problem}")
    if problems:
        fail(f"{config.env.kind}: {len(problems)} problem(s) found")
    print("no problem found")


if __name__ == "__main__":
    main()
