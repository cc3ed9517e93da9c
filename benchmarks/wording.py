"""Numbers as people read them."""

from __future__ import annotations


def duration(microseconds: float) -> str:
    """A time in a suitable unit, with three digits: 12.3 µs, 1.24 ms, 3.05 s."""
    for limit, divisor, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms")):
        if float(f"{microseconds:.3g}") < limit:
            return f"{three_digits(microseconds / divisor)} {unit}"
    return f"{three_digits(microseconds / 1e6)} s"


def ratio(value: float | None) -> str:
    """A ratio with a cross; a dash for None."""
    return "–" if value is None else f"{three_digits(value)}×"


def amount(value: float, unit: str) -> str:
    """A value with its unit; times in a suitable unit."""
    factors = {"µs": 1.0, "ms": 1e3, "s": 1e6}
    if unit in factors:
        return duration(value * factors[unit])
    return f"{three_digits(value)} {unit}"


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent: 0.0123, 1.23, 12.3, 1,230."""
    rounded = float(f"{value:.3g}")
    size = abs(rounded)
    decimals = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{rounded:,.{decimals}f}"
