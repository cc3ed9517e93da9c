"""A transformer and a tokenizer's dict: which sentences does it know?

Sentences about three topics are made up: some words belong to the topic, the others are common to
all. A small BERT of Hugging Face, with random weights at first, learns to tell the topics apart.
Its inputs are what a tokenizer returns, `input_ids` and `attention_mask` in a dict; sentences
differ in length and are padded. iknow takes the model and the dict as they are. By default it finds
support in the vector that enters the classifier. Here it also looks into the encoder, which has a
vector for each word: `pool="mean"` makes one of them per sentence, without the padding.

The model never saw a fourth topic, a sentence about nothing, or one that changes its topic.

    python examples/transformer.py
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from iknow import Assertion, EpistemicClassifier, as_model, evaluate

COMMON, PER_TOPIC, LONGEST = 30, 12, 16  # words
TOPICS = 3  # and one more that is not taught
VOCABULARY = 1 + COMMON + PER_TOPIC * (TOPICS + 1)  # word 0 is padding
SHARE = 0.3  # of the words in a sentence that belong to its topic
LAYERS = ["bert.encoder", "classifier.input"]

Texts = dict[str, np.ndarray]


def write(first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> Texts:
    """Sentences as a tokenizer returns them; first, second: topics of their halves, of shape (n,).

    The first half has four words. Topic -1 has no words of its own.
    """
    shape = len(first), LONGEST
    topic = np.where(np.arange(LONGEST) < 4, first[:, None], second[:, None])
    own = 1 + COMMON + PER_TOPIC * topic + rng.integers(0, PER_TOPIC, shape)
    common = 1 + rng.integers(0, COMMON, shape)
    words = np.where((rng.random(shape) < SHARE) & (topic >= 0), own, common)
    mask = (np.arange(LONGEST) < rng.integers(8, LONGEST + 1, len(first))[:, None]).astype(np.int64)
    return {"input_ids": words * mask, "attention_mask": mask}


def train_transformer(texts: Texts, labels: np.ndarray) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=LONGEST, num_labels=TOPICS,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = np.random.default_rng(0)
    for _ in range(150):
        rows = rng.integers(0, len(labels), 64)
        batch = {name: torch.from_numpy(values[rows]) for name, values in texts.items()}
        loss = model(**batch, labels=torch.from_numpy(labels[rows])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, TOPICS, n) for n in (2000, 800, 800)]
    train, validation, test = (write(topics, topics, rng) for topics in labels)
    y_train, y_validation, y_test = labels
    model = train_transformer(train, y_train)

    ec = EpistemicClassifier(as_model(model, pool="mean"), layers=LAYERS, progress=False)
    ec.fit(train, y_train)
    ec.tune(validation, y_validation)
    assessment = ec.assess(test)

    print(evaluate(assessment, y_test))
    known = np.asarray(assessment.assertion == Assertion.IK)
    right = np.asarray(assessment.belief == y_test)
    found = {
        "coverage": float(known.mean()),
        "accuracy on IK": float(right[known].mean()),
        "accuracy elsewhere": float(right[~known].mean()),
    }
    # The usual alternative: a threshold on the softmax, with the same coverage of the test set.
    threshold = np.quantile(confidence(model, test), 1 - known.mean())
    print("\nsentences it should not know       IK   softmax above the same coverage")
    fourth, none, any_one = np.full(500, TOPICS), np.full(500, -1), rng.integers(0, TOPICS, 500)
    for name, (first, second) in {
        "a fourth topic": (fourth, fourth),
        "no topic": (none, none),
        "another topic from word 5 on": (any_one, (any_one + 1) % TOPICS),
    }.items():
        strange = write(first, second, rng)
        accepted = np.asarray(ec.assess(strange).assertion == Assertion.IK).mean()
        passed = (confidence(model, strange) > threshold).mean()
        print(f"{name:30} {accepted:6.1%}   {passed:6.1%}")
        found[f"IK: {name}"], found[f"softmax: {name}"] = float(accepted), float(passed)
    return found


def confidence(model: BertForSequenceClassification, texts: Texts) -> np.ndarray:
    """The largest softmax for each sentence, of shape (n,)."""
    with torch.no_grad():
        scores = model(**{name: torch.from_numpy(values) for name, values in texts.items()}).logits
        return scores.softmax(dim=1).amax(dim=1).numpy()


if __name__ == "__main__":
    main()
