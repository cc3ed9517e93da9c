"""Make the data of the tutorial on embeddings: python docs/figures/embeddings.py MODEL.

What functions of Python's standard library say about themselves, by area, and the embeddings of it
by a sentence encoder: MODEL is a folder with all-MiniLM-L6-v2 (22 million weights), as published
under sentence-transformers. It needs torch and transformers.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("embeddings.npz")
AREAS = {
    "mail": "email.message email.mime.base email.header email.policy email.generator mailbox "
    "smtplib imaplib poplib email.utils email.headerregistry email.charset",
    "concurrency": "asyncio.tasks asyncio.events asyncio.locks asyncio.queues asyncio.streams "
    "asyncio.base_events threading multiprocessing.pool multiprocessing.managers queue "
    "concurrent.futures._base sched",
    "numbers": "math cmath decimal fractions statistics random numbers",
    "files": "pathlib shutil os os.path zipfile tarfile tempfile glob fileinput filecmp gzip",
    "testing": "unittest.case unittest.suite unittest.loader unittest.mock unittest.runner doctest "
    "pdb bdb trace unittest.result",
    "text": "re string textwrap difflib unicodedata codecs html html.parser gettext locale",
}
FOREIGN = {"turtle graphics": "turtle tkinter"}
MOST = 90  # sentences of an area


def sentences(modules: str) -> list[str]:
    """The first sentence of what each function and method of some modules says about itself."""
    found: dict[str, None] = {}
    for name in modules.split():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for _, thing in inspect.getmembers(module):
            members = [thing]
            if inspect.isclass(thing):
                members += [value for _, value in inspect.getmembers(thing)]
            for member in members:
                if getattr(member, "__module__", None) != name or not callable(member):
                    continue
                text = re.split(r"\n\s*\n|(?<=\.)\s", inspect.getdoc(member) or "")[0]
                text = " ".join(text.split())
                if 5 <= len(text.split()) <= 30 and "(" not in text[:25]:
                    found[text] = None
    return list(found)


def embed(folder: str, texts: list[str]) -> np.ndarray:
    """The mean of the last hidden states of each text, of length 1, of shape (n, 384)."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    rows = []
    for start in range(0, len(texts), 64):
        batch = tokenizer(texts[start : start + 64], padding=True, return_tensors="pt")
        with torch.no_grad():
            hidden = model.eval()(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        rows.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)))
    return torch.cat(rows).numpy().astype(np.float16)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for area, modules in {**AREAS, **FOREIGN}.items():
        found = sentences(modules)
        chosen = [found[i] for i in rng.permutation(len(found))[:MOST]]
        print(area, len(found))
        texts += chosen
        labels += [area] * len(chosen)
    pairs = zip(texts, labels, strict=True)
    once = {text: label for text, label in pairs if texts.count(text) == 1}
    np.savez_compressed(
        FILE,
        texts=np.array(list(once)),
        areas=np.array(list(once.values())),
        embeddings=embed(sys.argv[1], list(once)),
    )
    print(FILE.stat().st_size)
