"""The registry: rules by name, for the command line, bundles and plots.

A rule that is not here works too, but cannot be saved: a file stores only the name of its rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from inspect import isabstract
from typing import Any, TypeVar

from iknow.core.quorum import ONE
from iknow.core.rule import Rule
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.rules.ball import Ball
from iknow.rules.hybrids import BallElseNearest, BallWithNearest
from iknow.rules.nearest import Nearest
from iknow.rules.relative_ball import RelativeBall

RULES: dict[str, type[Rule]] = {
    rule.__name__: rule for rule in (Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall)
}

R = TypeVar("R", bound=type[Rule])


def register_rule(rule: R) -> R:
    """Make a rule known by its name, so that you can save, load, list and compare it.

    Call it before you `load` a bundle with the rule; it also works as a decorator.

    Args:
        rule: A frozen dataclass that inherits `iknow.core.rule.Rule`, with a name of its own.

    Examples:
        >>> from iknow import Ball, register_rule
        >>> register_rule(Ball)  # known already
        <class 'iknow.rules.ball.Ball'>
    """
    if not (isinstance(rule, type) and issubclass(rule, Rule)) or isabstract(rule):
        raise InputError(f"a rule must be a class of Rule with a reach; got {shown(rule)}")
    if not is_dataclass(rule) or rule.__hash__ is None:
        raise InputError(f"a rule must be a frozen dataclass, @dataclass(frozen=True); got {rule}")
    known = RULES.get(rule.__name__, rule)
    # A rule from the same place is the same rule defined again, as when a notebook cell runs twice.
    if (known.__module__, known.__qualname__) != (rule.__module__, rule.__qualname__):
        raise InputError(f"the name {rule.__name__} is taken by the rule {known}: choose another")
    RULES[rule.__name__] = rule
    return rule


def name_of(rule: type[Rule]) -> str:
    if RULES.get(name := rule.__name__) is not rule:
        raise InputError(
            f"the rule {name} cannot be saved, as only {', '.join(RULES)} are registered: call "
            f"iknow.register_rule({name}) first"
        )
    return name


def rule_named(name: object) -> type[Rule]:
    if not isinstance(name, str) or name not in RULES:
        raise InputError(
            f"unknown rule {shown(name, 60)}: call iknow.register_rule with it first, or use one "
            f"of {', '.join(RULES)}"
        )
    return RULES[name]


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """Return `rule` as plain values for JSON; `rule_from_dict` reads it back."""
    values = {name: value for name, value in vars(rule).items() if name != "quorum"}
    if rule.quorum != ONE:
        values["quorum"] = list(rule.quorum)
    return {"rule": name_of(type(rule)), **values}


def rule_from_dict(record: Mapping[str, Any]) -> Rule:
    """Return the rule that `rule_to_dict` wrote as `record`."""
    parameters = dict(record)
    rule = rule_named(parameters.pop("rule", None))
    try:
        return rule(**parameters)
    except TypeError as error:
        raise InputError(f"{rule.__name__} cannot be made from {parameters}: {error}") from error
