"""A small model of each kind, with its data, for the lines on the first page of the docs."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy as np
import torch
import xgboost
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

from iknow import EpistemicClassifier  # noqa: F401 - for the page
from iknow.models import PrecomputedModel  # noqa: F401

torch.manual_seed(0)
X, y = load_iris(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order].astype(np.float32), y[order]
X_train, X_val, X_test = X[:70], X[70:110], X[110:]
y_train, y_val = y[:70], y[70:110]

pipeline = make_pipeline(StandardScaler(), MLPClassifier((16,), max_iter=3000, random_state=0))
pipeline.fit(X_train, y_train)
with open("model.onnx", "wb") as file:
    file.write(to_onnx(pipeline, X_train[:1]).SerializeToString())


def learn(module, call, epochs=150):
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(call(module), torch.tensor(y_train)).backward()
        optimizer.step()


network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
learn(network, lambda module: module(torch.tensor(X_train)))
train_loader, val_loader, test_loader = (
    DataLoader(TensorDataset(torch.tensor(X[part]), torch.tensor(y[part])), batch_size=16)
    for part in (slice(70), slice(70, 110), slice(110, None))
)

table_train, table_val, table_test = (part.copy() for part in (X_train, X_val, X_test))
for table in (table_train, table_val, table_test):
    table[::7, 1] = np.nan
booster = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1).fit(table_train, y_train)

keras.utils.set_random_seed(0)
keras_model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3, "softmax")]
)
keras_model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy")
keras_model.fit(X_train, y_train, epochs=60, verbose=0)


def tokens(part):
    ids = torch.tensor(np.clip(part * 10, 1, 99), dtype=torch.long)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


tokens_train, tokens_val, tokens_test = map(tokens, (X_train, X_val, X_test))
transformer = BertForSequenceClassification(
    BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, num_labels=3, max_position_embeddings=8,
    )
)  # fmt: skip
learn(transformer, lambda module: module(**tokens_train).logits, 40)

predict_scores = pipeline.predict_proba
embed = pipeline[0].transform
outputs_train, outputs_val, outputs_test = (
    (predict_scores(part), {"hidden": embed(part)}) for part in (X_train, X_val, X_test)
)
