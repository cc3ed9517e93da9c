"""The kernels compile for a GPU, here without one: an interpreter accepts more than a compiler."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.slow

CODE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from iknow.search.kernels import triton as kernels

FLOATS = "points queries half_norms losses lengths scales norms errors lows seconds values " \\
    "low_out limits others limit_out numbers_out bounds"
TYPES = {name: "*fp32" for name in FLOATS.split()}
TYPES |= {name: "*i32" for name in "tile_out leaves".split()}
TYPES |= {name: "*i64" for name in "starts ends ranks query block numbers number_out tiles "
          "count block_out columns column_out".split()}
TYPES |= {name: "*fp64" for name in "distance_out constants center half_norm_out".split()}


def check(kernel, constants, types=(), **options):
    types = {**TYPES, **dict(types)}
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in names}
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, constexprs=values)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


tile = dict(STEP=64, N_STEPS=2, TILE_Q=64, TILE_R=64, STRIPES=16)
half = {"rows": "*fp16", "queries": "*fp16"}
check(kernels.bound_tiles, tile | {"SHARE": 0}, half)
check(kernels.bound_tiles, tile | {"SHARE": 8, "seconds": None}, half)
for other in (True, False):
    check(kernels.lowest_of_sets, dict(AT_ONCE=8, TILE_Q=64, OTHER=other))
check(kernels.list_columns, dict(TILE_T=16, TILE_Q=64))
check(kernels.bound_queries, dict(TILE_Q=16, STEP=64, WIDTH=64), {"low_out": "*fp16"})
for width, n_leaves in ((20, 1), (784, 8)):  # unrolled, and in a loop
    row = dict(SIZE=4, WIDTH=width, N_LEAVES=n_leaves)
    bits = {"lows": "*i32", "half_norms": "*fp64"}
    exact = {"enable_fp_fusion": False}
    check(kernels.measure_winners, row | dict(PAIRS=8, STRIPES=8), bits, **exact)
    check(kernels.measure_open, row | dict(STRIPES=8), bits | {"tiles": "*i32"}, **exact)
    check(kernels.nearest_of_pairs, row | dict(PAIRS=8), **exact)
    check(kernels.nearest_of_pairs, row | dict(PAIRS=8, few=1), **exact)
"""


def test_kernels_compile_for_a_gpu():
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
