"""OnnxModel on a network of production: what magika itself says."""

import sysconfig
from pathlib import Path

import numpy as np
import pytest

from examples.magika_files import CONFIG, MODEL, view
from iknow.models import OnnxModel
from iknow.testing import ModelContract

LAST = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/LayerNorm_1/AddV2_1:0"
NAMES = ("os.py", "abc.py", "ast.py", "json/decoder.py", "LICENSE.txt", "email/mime/text.py",
         "pydoc_data/_pydoc.css", "string.py", "this.py", "random.py")  # fmt: skip


@pytest.fixture(name="contents", scope="module")
def some_files():
    folder = Path(sysconfig.get_path("stdlib"))
    return [path.read_bytes() for path in map(folder.joinpath, NAMES) if path.is_file()]


def test_it_says_what_magika_says(contents):
    magika = pytest.importorskip("magika").Magika()
    model = OnnxModel(MODEL)
    for content in contents:
        found = model.observe(model.prepare(view(content)[None]), [LAST])
        said = magika.identify_bytes(content)
        assert CONFIG["target_labels_space"][found.belief[0]] == str(said.dl.label)
        assert found.scores.max() == pytest.approx(said.score, abs=1e-4)
        assert found.activations[LAST].shape == (1, 512)


class TestMagika(ModelContract):
    # Sums in another order, and a variance that is a small difference of large numbers.
    tolerance = 1e-3

    def make_model(self):
        return OnnxModel(MODEL)

    def make_inputs(self):
        folder = Path(sysconfig.get_path("stdlib"))
        paths = [path for path in map(folder.joinpath, NAMES) if path.is_file()]
        return np.stack([view(path.read_bytes()) for path in paths])
