import getpass
import platform
import subprocess

from benchmarks import machine


def test_the_machine_is_told_without_names_or_paths():
    found = machine.describe_machine()
    for heading in ("processor", "cores", "GPU", "Python", "BLAS", "numpy", "faiss-cpu"):
        assert found[heading]
    text = " ".join(found.values())
    node = platform.node()
    assert not node or node not in text.split()
    assert "/" not in text.replace("benchmarks/gpu.py", "")
    assert getpass.getuser() not in text.split()
    assert int(found["cores"]) >= 1


def test_no_graphics_card_is_said_plainly(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert machine.find_gpu().startswith("none found")


def test_a_driver_without_a_card_counts_as_none(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: name)
    failed = subprocess.CompletedProcess([], 9, "no devices were found\n", "")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: failed)
    assert machine.find_gpu().startswith("none found")


def test_cards_are_named(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: name)
    done = subprocess.CompletedProcess([], 0, "Card A, 8 GiB\nCard B, 4 GiB\n", "")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: done)
    assert machine.find_gpu() == "Card A, 8 GiB; Card B, 4 GiB"


def test_an_absent_package_is_said_to_be_absent():
    assert machine._version("no-such-package-anywhere") == "not installed"
