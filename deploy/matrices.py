#!/usr/bin/env python3
"""Writes two .npy matrices and checks the product that a server made of them.

  matrices.py write DIR            A.npy (1031 x 517) and B.npy (517 x 389), fp32, fixed seed
  matrices.py verify DIR           D.npy against A.npy times B.npy; exit status 1 on a mismatch

NumPy makes the reference where it is there. Without it the same files are written and read by the
standard library, and a sample of D's elements is checked, corners included.
"""

import array
import ast
import math
import pathlib
import random
import struct
import sys

try:
    import numpy
except ImportError:
    numpy = None

ROWS, INNER, COLUMNS = 1031, 517, 389  # primes, but for INNER = 11 * 47: no tile divides them
SEED = 20
SAMPLES = 4000
# Sums of INNER products of numbers in [-1, 1): fp32 accumulation, in whatever order, stays well
# within this, and a lower precision or a wrong element does not.
TOLERANCE = 1e-4
MAGIC = b"\x93NUMPY\x01\x00"


def write_npy(path, rows, columns, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    padding = -(len(MAGIC) + 2 + len(header) + 1) % 64
    text = (header + " " * padding + "\n").encode("latin1")
    path.write_bytes(MAGIC + struct.pack("<H", len(text)) + text + values.tobytes())


def read_npy(path):
    """Returns (rows, columns, array of fp32)."""
    raw = path.read_bytes()
    if raw[:8] != MAGIC:
        sys.exit(f"{path}: not a .npy file of version 1.0")
    (length,) = struct.unpack_from("<H", raw, 8)
    header = ast.literal_eval(raw[10 : 10 + length].decode("latin1"))
    if header["descr"] != "<f4" or header["fortran_order"] or len(header["shape"]) != 2:
        sys.exit(f"{path}: want a row-major fp32 matrix, got {header}")
    values = array.array("f")
    values.frombytes(raw[10 + length :])
    return (*header["shape"], values)


def write(folder):
    rng = random.Random(SEED)
    for name, rows, columns in (("A", ROWS, INNER), ("B", INNER, COLUMNS)):
        values = array.array("f", (rng.uniform(-1, 1) for _ in range(rows * columns)))
        write_npy(folder / f"{name}.npy", rows, columns, values)


def verify_with_numpy(folder):
    a, b, d = (numpy.load(folder / f"{name}.npy") for name in "ABD")
    if d.shape != (ROWS, COLUMNS) or d.dtype != numpy.float32:
        sys.exit(f"D is {d.shape} {d.dtype}, want {(ROWS, COLUMNS)} float32")
    want = a.astype(numpy.float64) @ b.astype(numpy.float64)
    error = numpy.abs(d - want)
    wrong = numpy.argwhere(~(error <= TOLERANCE))  # a NaN is wrong too
    if wrong.size:
        i, j = wrong[0]
        sys.exit(f"{len(wrong)} elements differ; first D[{i}, {j}] = {d[i, j]}, want {want[i, j]}")
    print(f"    all {d.size} elements agree with NumPy; largest error {error.max():.1e}")


def verify_sample(folder):
    (_, _, a), (_, _, b), (rows, columns, d) = (read_npy(folder / f"{n}.npy") for n in "ABD")
    if (rows, columns) != (ROWS, COLUMNS):
        sys.exit(f"D is {rows} x {columns}, want {ROWS} x {COLUMNS}")
    rng = random.Random(SEED)
    places = [(i, j) for i in (0, ROWS - 1) for j in (0, COLUMNS - 1)]
    places += [(rng.randrange(ROWS), rng.randrange(COLUMNS)) for _ in range(SAMPLES)]
    for i, j in places:
        want = math.fsum(a[i * INNER + k] * b[k * COLUMNS + j] for k in range(INNER))
        got = d[i * COLUMNS + j]
        if not abs(got - want) <= TOLERANCE:
            sys.exit(f"D[{i}, {j}] = {got}, want {want}")
    print(f"    {len(places)} elements agree with an exact sum (NumPy is absent: a sample)")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "verify"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "write":
        write(folder)
    elif numpy is not None:
        verify_with_numpy(folder)
    else:
        verify_sample(folder)


main()
