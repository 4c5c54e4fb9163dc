"""The package's connect four positions are what their script writes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_script_writes_the_packages_positions() -> None:
    """If this fails: `python scripts/make_connect4_positions.py`."""
    pytest.importorskip("bitbully", reason="needs the extra `solver`")
    script = ROOT / "scripts" / "make_connect4_positions.py"
    subprocess.run([sys.executable, str(script), "--check"], check=True, cwd=ROOT)
