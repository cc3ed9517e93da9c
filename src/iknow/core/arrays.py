"""Names for the array types that flow through the library."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Codes = NDArray[np.int8]
Bools = NDArray[np.bool_]
Labels = NDArray[np.generic]
