"""The alarm on real data, next to others: false alarms over long streams, and how late it rings.

    IKNOW_DATA=DATA python -m benchmarks.alarm --out docs/figures

A scene (`scenes`) is a trained model, and what it says about ordinary samples and about samples
after a change: the paper's noise, a class that was kept from training, a slow rotation. From it
`streams` draws reference samples and streams. On the same streams we let iknow's alarm run, and
other packages' detectors, each in a file that bears its name (`peers`). Packages that do not fit
into the same environment run in their own: name its Python, as in
`--alibi-detect=/venv/bin/python`.

The bets of `iknow.serve.monitor.martingale` were chosen on the scenes of `DESIGN`; the figures to
quote are those of the others.
"""
