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

FLOATS = "rows queries_low half_norms losses lengths scales norms errors lows seconds minima " \\
    "low_out other_out limits others limit_out numbers_out bounds"
TYPES = {name: "*fp32" for name in FLOATS.split()}
TYPES |= {name: "*i32" for name in "tile_out tiles leaves listed_queries".split()}
TYPES |= {name: "*i64" for name in "starts ends ranks query block numbers number_out "
          "count best best_number block_out query_out".split()}
TYPES |= {name: "*fp64" for name in "distance_out distances constants center half_norm_out".split()}
TYPES |= {"points": "*fp32", "queries": "*fp32"}


def check(kernel, constants, types=(), **options):
    types = {**TYPES, **dict(types)}
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in names}
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, constexprs=values)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


tile = dict(STEP=64, N_STEPS=2, TILE_Q=64, TILE_R=64, STRIPES=16, WIDEN=False)
half = {"rows": "*fp16", "queries": "*fp16"}
check(kernels.tile_winners, tile, half)
check(kernels.block_minima, tile | {"SHARE": 8}, half)
check(kernels.lowest_of_tiles, dict(AT_ONCE=8, TILE_Q=64))
check(kernels.lowest_of_segments, dict(AT_ONCE=8, TILE_Q=64))
check(kernels.list_within, dict(TILE_T=16, TILE_Q=64), {"query_out": "*i32"})
check(kernels.name_nearest, dict(AT_ONCE=64), {"best": "*fp64"})
check(kernels.bound_queries, dict(TILE_Q=16, STEP=64, WIDTH=64, SMALLEST=2.0**-14, TOP=15, FAR=80,
      TRUSTED=True), {"low_out": "*fp16"})
for width, n_leaves in ((20, 1), (784, 8)):  # unrolled, and in a loop
    row = dict(SIZE=4, WIDTH=width, N_LEAVES=n_leaves)
    bits = {"lows": "*i32", "half_norms": "*fp64"}
    exact = {"enable_fp_fusion": False}
    check(kernels.measure_winners, row | dict(PAIRS=8, STRIPES=8), bits, **exact)
    check(kernels.measure_open, row | dict(STRIPES=8), bits, **exact)
    check(kernels.nearest_of_pairs, row | dict(PAIRS=8, FEW=3), **exact)
    check(kernels.distances_of_pairs, row | dict(PAIRS=8), **exact)
"""


def test_kernels_compile_for_a_gpu():
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
