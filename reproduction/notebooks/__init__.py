"""The authors' public notebooks: the figures they print, and ours in the same settings.

They lie in github.com/GE-Research-Machine-Learning/Epistemic-Classifier (commit 00ba725, MIT
License). We cite their figures and rebuild their settings; none of their code is here.

    printed.csv → printed ─────────────────────┐
    settings → data → run → outcomes → compare → page → notebooks.md
"""
