"""What tests of several packages share."""

import subprocess
import sys

import pytest
from hypothesis import settings

# Examples are the same on every run. How long one takes tells of the machine: it is no test.
settings.register_profile("iknow", deadline=None, derandomize=True)
settings.load_profile("iknow")


def run_where_absent(packages, code):
    """Run code in a fresh process where some packages cannot be imported; returns what it says."""
    hidden = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {list(packages)}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
"""
    command = [sys.executable, "-c", hidden + code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def run_without():
    return run_where_absent
