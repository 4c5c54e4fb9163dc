"""A picture of muzero-play's page at a position of a run's game, searched; needs Chromium on the PATH, and Pillow.

python scripts/make_screenshots.py runs/connect_four/2030-01-31_12-00-00 docs/images/play_connect_four.png --moves 3 3 2 --simulations 400
"""

import argparse
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from PIL import Image

from muzero.config.environments import OpenSpielConfig
from muzero.config.store import load_config
from muzero.play.analyst import Analyst, RunCheckpoints
from muzero.play.session import Session
from muzero.play.web import PlayServer
from muzero.runtime.build import Builder
from muzero.runtime.players import open_checkpoint

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAX_BYTES = 150_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="run folder of one of OpenSpiel's board games")
    parser.add_argument("picture", type=Path, help="PNG to write")
    parser.add_argument(
        "--moves", type=int, nargs="*", default=[], help="numbers of the moves made"
    )
    parser.add_argument("--simulations", type=int, default=200, help="simulations per search")
    parser.add_argument("--width", type=int, default=1400)
    parser.add_argument("--height", type=int, default=1140)
    parser.add_argument("overrides", nargs="*", help="settings such as search.dynamics=rules")
    arguments = parser.parse_intermixed_args()
    browser = next((path for name in NAMES if (path := shutil.which(name))), None)
    if browser is None:
        parser.error("there is no Chromium on the PATH: install one, such as Debian's chromium")
    session = searched_game(arguments)
    with PlayServer(session, port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            take_picture(browser, server.url, arguments)
        finally:
            server.shutdown()
            thread.join()
    size = arguments.picture.stat().st_size
    print(f"{arguments.picture}: {size:,} bytes, learner step {session.step}")
    if size > MAX_BYTES:
        parser.error(f"that is more than {MAX_BYTES:,} bytes: give a smaller --width and --height")


def searched_game(arguments: argparse.Namespace) -> Session:
    """The game after `moves`, every position of it searched."""
    config = load_config(arguments.run, arguments.overrides)
    assert isinstance(config.env, OpenSpielConfig), f"{arguments.run} is not of an OpenSpiel game"
    analyst = Analyst(Builder.of(config), RunCheckpoints(arguments.run), time_limit=600.0)
    step = open_checkpoint(arguments.run).step
    session = Session(
        analyst, config.env, side="both", step=step, num_simulations=arguments.simulations
    )
    session.new_game(session.version, arguments.moves)
    for ply in range(len(arguments.moves) + 1):
        session.analyse(session.version, ply)
    return session


def take_picture(browser: str, url: str, arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--force-prefers-reduced-motion",
             f"--window-size={arguments.width},{arguments.height}", "--virtual-time-budget=10000",
             f"--screenshot={arguments.picture.resolve()}", url],
            check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    # A palette makes half of the bytes.
    with Image.open(arguments.picture) as picture:
        reduced = picture.convert("RGB").quantize(
            256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    reduced.save(arguments.picture, optimize=True)


if __name__ == "__main__":
    main()
