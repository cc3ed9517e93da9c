"""The scoreboard: iknow and its peers on every dataset at hand, at equal coverage.

    pack → data → models → cells → methods → records → table, words, figure

Every method scores the answers of the same trained model. Its threshold is chosen on clean
validation data, so that all assert equally much; then each meets data that is shifted, attacked,
foreign, of a class never seen, or of a model trained on wrong labels, and we count what it asserts
and gets wrong. Two prices count: what is wrong on clean data (AUGRC clean), and on clean and
strange data together, half and half (AUGRC all), where every assertion about foreign data is wrong,
as in selective classification with out-of-distribution data (Xia and Bouganis, 2022). Choices
looked at the problems marked "design" alone.

    python -m benchmarks.scoreboard.pack SOURCE DATA
    python -m benchmarks.scoreboard DATA --out DIR --device cuda
"""
