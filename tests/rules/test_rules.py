"""All that the rules say about themselves, by the contract that every rule must pass."""

import math
import re
from pathlib import Path

from iknow import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.rules import RULES
from iknow.testing import RuleContract

BAD_RADII = [
    {"radius": radius} for radius in (-1, -math.inf, math.nan, True, "1", None, [], [1.0] * 3)
]
BAD_K = [{"k": k} for k in (0, -3, 1.5, 2.0, True, "3", None, 2**70)]
BAD_RATIOS = [{"ratio": ratio} for ratio in (-0.1, -1, math.inf, math.nan, None, "2", True, [2.0])]
BAD_SEEN = [{"seen": seen} for seen in (-1, -math.inf, math.nan, True, "1", None, [], [1.0] * 3)]
BAD_QUORUMS = [{"quorum": quorum} for quorum in (0, -1, 1.5, True, "3", None, (1, 0), (1, 2, 3))]


class TestBall(RuleContract):
    def make_rules(self):
        return [Ball(0.6), Ball(1.0), Ball(0.0), Ball(math.inf)]

    def bad_parameters(self):
        return [*BAD_QUORUMS, *BAD_RADII]


class TestNearest(RuleContract):
    def make_rules(self):
        return [Nearest(1), Nearest(2), Nearest(3)]

    def bad_parameters(self):
        return [*BAD_QUORUMS, *BAD_K]


class TestBallElseNearest(RuleContract):
    def make_rules(self):
        return [BallElseNearest(0.6, 2), BallElseNearest(0.3, 1), BallElseNearest(1.0, 3)]

    def bad_parameters(self):
        return [*BAD_QUORUMS, *BAD_RADII, *BAD_K]


class TestBallWithNearest(RuleContract):
    def make_rules(self):
        return [BallWithNearest(0.6, 2), BallWithNearest(1.0, 1), BallWithNearest(1.0, 3)]

    def bad_parameters(self):
        return [*BAD_QUORUMS, *BAD_RADII, *BAD_K]


class TestRelativeBall(RuleContract):
    def make_rules(self):
        narrow = [RelativeBall(1.0, 0.7), RelativeBall(math.inf, 0.0)]
        wide = [RelativeBall(1.0, 1.5), RelativeBall(0.6, 1.0), RelativeBall(math.inf, 2.0)]
        seen = [RelativeBall(1.0, 1.2, 1.5), RelativeBall(math.inf, 0.0, 1.2)]
        return [*wide, *narrow, *seen]

    def bad_parameters(self):
        return [*BAD_QUORUMS, *BAD_RADII, *BAD_RATIOS, *BAD_SEEN]


def test_the_reference_lists_every_rule_in_the_order_of_the_registry():
    page = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
    listed = re.findall(r"^::: iknow\.(\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [*RULES, "register_rule", "Rule"]


def test_a_rule_has_a_name_on_the_command_line():
    assert [rule.command_name() for rule in RULES.values()] == [
        "ball",
        "nearest",
        "ball-else-nearest",
        "ball-with-nearest",
        "relative-ball",
    ]
