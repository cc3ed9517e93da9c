"""Approximate search with a contract: what may differ from exact search, and what may not.

An approximate index proposes rows, and may miss any. We measure what it proposes, so a distance is
never too small: d̂_c >= d_c. A missed row of another class could turn IMK into IK, the one error
that must not happen; a missed row of the believed class turns an IK into less.

So in the mode "verified" no IK rests on proposals. They only say how far away the believed class is
at most, d̂_g, and with it how far the reach can go at most. The exact bounds of a `CellIndex` then
show that no other class is within it (`clearing`), or exact search decides. The mode "exact" takes
nothing from proposals but such proofs. The mode "fast" believes proposals wherever there is no
proof, and promises nothing. `tune` measures on validation data how often that makes a difference
(`Selection.approximation`).
"""

from iknow.search.approximate.faiss_index import FaissIndex
from iknow.search.approximate.index import ApproximateIndex
from iknow.search.approximate.proposing import Proposer

__all__ = ["ApproximateIndex", "FaissIndex", "Proposer"]
