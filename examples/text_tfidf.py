"""Text: a TF-IDF pipeline that sorts maintenance tickets, and says which are none of its business.

The pipeline gets a list of strings, as it always did, and so does iknow. Nearness is looked for
where the classifier looks: in the vectors that enter it, by their directions. The tickets are made
up, and so are the figures: they show what is printed, not what to expect of your own.

    python examples/text_tfidf.py
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from iknow import Assertion, EpistemicClassifier, evaluate

TEAMS = {
    "hydraulics": "pump valve hose seal pressure leak oil cylinder piston filter gauge fluid",
    "electrics": "cable fuse relay sensor voltage short breaker motor wiring lamp switch panel",
    "control": "screen program restart alarm network software message update operator menu log",
}
UNSEEN = "roof gutter rain window door paint fence gate snow tile carpet stairs"
SHARED = (
    "the machine has stopped again after the shift please check it was slow since monday and we "
    "saw this twice it is near the line and it needs someone soon"
)


def write_tickets(topics: dict[str, str], n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Some tickets: words of a topic among words of any ticket, and some of another topic."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(list(topics), size=n)
    every = [word for words in topics.values() for word in words.split()]
    tickets = []
    for label in labels:
        own = rng.choice(topics[label].split(), size=rng.integers(2, 7))
        astray = rng.choice(every, size=rng.integers(0, 5))
        filler = rng.choice(SHARED.split(), size=rng.integers(4, 12))
        tickets.append(" ".join(rng.permutation(np.concatenate([own, astray, filler]))))
    return tickets, labels


def main() -> dict[str, float]:
    """Train, tune, assess; returns what it prints as numbers."""
    tickets, teams = write_tickets(TEAMS, 1200, seed=0)
    pipeline = make_pipeline(
        TfidfVectorizer(stop_words="english"),
        TruncatedSVD(30, random_state=0),
        LogisticRegression(),
    )
    pipeline.fit(tickets, teams)

    # Three lines: the model as it is, its training data, and some tickets it has not seen.
    ec = EpistemicClassifier(pipeline, progress=False).fit(tickets, teams)
    ec.tune(*write_tickets(TEAMS, 800, seed=1))
    new_tickets, new_teams = write_tickets(TEAMS, 800, seed=2)
    assessment = ec.assess(new_tickets)

    print(evaluate(assessment, new_teams))
    known = assessment.assertion == Assertion.IK
    right = assessment.belief == new_teams
    example = int(known.argmax())
    print(f"\n{new_tickets[example]!r}\n{assessment.explain(example)}\n")

    buildings, _ = write_tickets({"buildings": UNSEEN}, 200, seed=3)
    strange = [*buildings, "", "wo ist der Schlüssel zur Halle"]
    foreign = ec.assess(strange).assertion == Assertion.IK
    print(
        f"Tickets about a topic that no team handles: IK on {foreign.mean():.1%}, though the "
        "pipeline names a team for each."
    )
    return {
        "coverage": float(known.mean()),
        "accuracy on IK": float(right[known].mean()),
        "accuracy elsewhere": float(right[~known].mean()),
        "foreign IK": float(foreign.mean()),
    }


if __name__ == "__main__":
    main()
