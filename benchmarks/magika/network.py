"""The model: magika's network, with its logits and its last hidden layer as further outputs.

The package ships an ONNX graph that ends in a dense layer and a softmax. We name the two tensors
around the dense layer as outputs, in a copy of the graph: the weights stay as they are. The network
reads the first and the last 1,024 bytes of a file, without the whitespace at its ends, padded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.magika.files import Types, type_by_extension
from iknow.core.arrays import Floats32, Ints, Labels


@dataclass(frozen=True, eq=False)
class Said:
    """Logits and last hidden layer of n files: (n, n_types) and (n, n_features)."""

    logits: Floats32
    hidden: Floats32

    def __getitem__(self, rows: Any) -> Said:
        return Said(self.logits[rows], self.hidden[rows])

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def belief(self) -> Ints:
        """The code of the believed type, of shape (n,)."""
        found: Ints = self.logits.argmax(axis=1)
        return found


class Network(Protocol):
    """A network that tells the types of files."""

    config: dict[str, Any]  # in the words of magika's own
    labels: Labels  # of its types, of shape (n_types,)

    def ask(self, contents: list[bytes]) -> Said: ...


class Magika:
    """The network of the installed magika package."""

    def __init__(self) -> None:
        package = Path(str(files("magika")))
        (self.folder,) = (path.parent for path in package.glob("models/*/model.onnx"))
        self.config: dict[str, Any] = json.loads((self.folder / "config.min.json").read_text())
        kinds = json.loads((package / "config" / "content_types_kb.min.json").read_text())
        self.labels = np.array(self.config["target_labels_space"])
        textual = frozenset(name for name, kind in kinds.items() if kind["is_text"])
        self.types = Types(type_by_extension(kinds, self.labels.tolist()), textual)

    @cached_property
    def session(self) -> Any:
        """The graph with its last hidden layer and its logits as outputs, ready to run."""
        import onnx  # what a network says can be judged without them
        import onnxruntime

        graph = onnx.load(self.folder / "model.onnx")
        products = [node for node in graph.graph.node if node.op_type == "MatMul"]
        dense = products[-1]
        (bias,) = (node for node in graph.graph.node if dense.output[0] in node.input)
        self.outputs = [bias.output[0], dense.input[0]]
        for name in self.outputs:
            graph.graph.output.append(
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            )
        return onnxruntime.InferenceSession(
            graph.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def read(self, content: bytes) -> bytes:
        """What the network sees of a file; nothing if that is too little for it."""
        view = self._view(content)
        least = self.config["min_file_size_for_dl"]
        return b"" if view[least - 1] == self.config["padding_token"] else view.tobytes()

    def _view(self, content: bytes) -> NDArray[np.int32]:
        first, last = self.config["beg_size"], self.config["end_size"]
        block, padding = self.config["block_size"], self.config["padding_token"]
        view = np.full(first + last, padding, dtype=np.int32)
        head = content[:block].lstrip()[:first]
        tail = content[-block:].rstrip()[-last:]
        view[: len(head)] = np.frombuffer(head, dtype=np.uint8)
        view[len(view) - len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
        return view

    def ask(self, contents: list[bytes]) -> Said:
        """Logits and hidden layer of files.

        One at a time, as magika does: in batches the runtime rounds otherwise, and a file's logits
        would depend on its neighbors in the batch, by a few hundredths.
        """
        session = self.session
        parts = [
            session.run(self.outputs, {"bytes": self._view(content)[None]}) for content in contents
        ]
        logits, hidden = map(np.concatenate, zip(*parts, strict=True))
        return Said(logits, hidden)
