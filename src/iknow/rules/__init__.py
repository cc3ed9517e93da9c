"""Rules that turn evidence into a reach.

    Ball(radius)                  ε
    Nearest(k)                    r_k
    BallElseNearest(radius, k)    ε if any sample lies within it, else r_k           (H-1)
    BallWithNearest(radius, k)    max(ε, r_k) if any sample lies within ε, else none (H-2)
    RelativeBall(radius, ratio)   ratio · r_1 if r_1 <= ε, else none                 (ours)

The contract that they share is `iknow.core.rule.Rule`.
"""

from iknow.rules.ball import Ball
from iknow.rules.hybrids import BallElseNearest, BallWithNearest
from iknow.rules.nearest import Nearest
from iknow.rules.registry import RULES, register_rule, rule_from_dict, rule_to_dict
from iknow.rules.relative_ball import RelativeBall

__all__ = [
    "RULES", "Ball", "BallElseNearest", "BallWithNearest", "Nearest", "RelativeBall",
    "register_rule", "rule_from_dict", "rule_to_dict",
]  # fmt: skip
