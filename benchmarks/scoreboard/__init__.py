"""The scoreboard: iknow and its peers on every dataset at hand, at equal coverage.

    pack → data → models → cells → methods → records → table, figure

Every method scores the answers of the same trained model. Its threshold is chosen on clean
validation data, so that all assert equally much; then each meets data that is shifted, attacked,
foreign, of a class never seen, or of a model trained on wrong labels, and we count what it asserts
and gets wrong. Choices (metrics, quorum, layers, defaults) looked at the problems of `DESIGN`
alone; those of `HELD_OUT` were run once, at the end.

    python -m benchmarks.scoreboard.pack SOURCE DATA
    python -m benchmarks.scoreboard DATA --out DIR --device cuda
"""
