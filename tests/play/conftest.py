"""One server for the tests of a file; every test begins a new game."""

import pytest

from tests.play.games import TIC_TAC_TOE, make_session
from tests.play.served import Client, serving


@pytest.fixture(scope="module")
def server():
    with serving(make_session(*TIC_TAC_TOE)) as server:
        yield server


@pytest.fixture
def client(server):
    session = server.session
    session.new_game(session.version)
    session.change(session.version, side="first", step=0, num_simulations=12)
    return Client(server)
