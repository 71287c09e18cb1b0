"""Names for the NumPy arrays of the kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]
I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
U8Array = npt.NDArray[np.uint8]
U32Array = npt.NDArray[np.uint32]
U64Array = npt.NDArray[np.uint64]
