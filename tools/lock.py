"""Write the hashes of constraints.txt anew: python tools/lock.py, after its versions were changed.

The file pins every package, section by section, and pip installs only files that have one of the
hashes beside their pin: those of all files that the package index has for a version, for any
platform. `uv` asks for them. The last section has no hashes: torch comes in many builds.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

FILE = Path(__file__).parents[1] / "constraints.txt"
UNHASHED = "# Without hashes"
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?P<marker>\s*;[^\\\n]*)?")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def hashes_by_pin(text: str) -> dict[str, set[str]]:
    """For each `name==version`, by its normalized name, the hashes that a text gives it."""
    found: dict[str, set[str]] = {}
    pin = ""
    for line in text.splitlines():
        if match := PIN.match(line):
            pin = normalized(match)
            found[pin] = set()
        found.setdefault(pin, set()).update(HASH.findall(line))
    return found


def normalized(match: re.Match[str]) -> str:
    return f"{re.sub(r'[-_.]+', '-', match['name']).lower()}=={match['version']}"


def write_hashes(text: str, known: dict[str, set[str]]) -> str:
    """The text with its comments and pins in their order, each pin followed by its hashes."""
    lines: list[str] = []
    for line in text.splitlines():
        if match := PIN.match(line):
            hashes = sorted(known[normalized(match)])
            if not hashes:
                raise SystemExit(f"no file was found for {match[0]}: is the version right?")
            pin = f"{match['name']}=={match['version']}{(match['marker'] or '').rstrip()}"
            lines += [" \\\n    ".join([pin, *(f"--hash={value}" for value in hashes)])]
        elif line.startswith("#") or not line.strip():
            lines.append(line)
    return "\n".join(lines) + "\n"


def ask_index(text: str) -> dict[str, set[str]]:
    """The hashes that the package index has for the pins of a text."""
    pins = "\n".join(match[0] for line in text.splitlines() if (match := PIN.match(line)))
    command = "uv pip compile --no-deps --generate-hashes --no-header --no-annotate --universal -"
    answer = subprocess.run(command.split(), input=pins, text=True, capture_output=True)
    if answer.returncode:
        raise SystemExit(f"uv found no answer:\n{answer.stderr}")
    return hashes_by_pin(answer.stdout)


if __name__ == "__main__":
    hashed, mark, rest = FILE.read_text().partition(UNHASHED)
    FILE.write_text(f"{write_hashes(hashed.rstrip(), ask_index(hashed))}\n{mark}{rest}")
