"""``diorite.load`` against the readers of ``safetensors``, ``gguf`` and NumPy, bit for bit, and on damaged files.

``cargo xtask load`` runs it. The rule for a damaged file: an ``OSError``, or the same tensors as the peer. Where the peer refuses a file that
is loaded, the script counts it, and fails for ``.safetensors``.
"""

import collections
import pathlib
import random
import sys
import tempfile

import gguf
import ml_dtypes
import numpy
import safetensors.numpy

import diorite

CASES = int(sys.argv[1]) if len(sys.argv) > 1 else 300
SAFE = [numpy.float64, numpy.float32, numpy.float16, ml_dtypes.bfloat16, numpy.int64, numpy.int32, numpy.int16, numpy.int8]
SAFE += [numpy.uint64, numpy.uint32, numpy.uint16, numpy.uint8, numpy.bool_]
PLAIN_GGUF = [numpy.float32, numpy.float16, numpy.float64, numpy.int8, numpy.int16, numpy.int32, numpy.int64]


def filled(dtype, shape, source):
    """An array of random bytes, of 0 and 1 for truth values."""
    if dtype is numpy.bool_:
        return source.integers(0, 2, shape).astype(numpy.bool_)
    size = numpy.dtype(dtype).itemsize * int(numpy.prod(shape))
    return numpy.frombuffer(source.bytes(size), dtype=dtype).reshape(shape)


def shape_of(source, least=0):
    return tuple(int(n) for n in source.integers(least, 40, int(source.integers(least, 5))))


def same(found, expected, name):
    assert found.shape == expected.shape, (name, found.shape, expected.shape)
    assert found.dtype == expected.dtype, (name, found.dtype, expected.dtype)
    assert found.tobytes() == expected.tobytes(), name


def write_safetensors(path, source):
    arrays = {f"t.{at}": filled(SAFE[at % len(SAFE)], shape_of(source), source) for at in range(26)}
    safetensors.numpy.save_file(arrays, path, metadata={"seed": "1"})


def read_safetensors(path):
    return safetensors.numpy.load_file(path)


def write_gguf(path, source):
    writer = gguf.GGUFWriter(str(path), "test")
    writer.add_string("general.name", "a model")
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", ""] * 20)
    writer.add_float32("one", 1.0)
    for at, dtype in enumerate(PLAIN_GGUF):
        writer.add_tensor(f"p.{at}", filled(dtype, (*shape_of(source, 1)[:3], 8), source))
    for kind, (items, size) in gguf.GGML_QUANT_SIZES.items():
        if items > 1 and kind.name in KNOWN:
            rows = int(source.integers(1, 5))
            data = numpy.frombuffer(source.bytes(rows * 2 * size), dtype=numpy.uint8).reshape(rows, 2 * size)
            writer.add_tensor(f"q.{kind.name}", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_gguf(path):
    return {tensor.name: numpy.array(tensor.data) for tensor in gguf.GGUFReader(str(path)).tensors}


def npy_arrays(source):
    fields = [("a", "<f4"), ("b", ">i2", (2, 3)), ("c", "S3"), ("d", [("e", "<u8"), ("f", "?")])]
    return {
        "plain": filled(numpy.float32, (30, 7), source),
        "fortran": numpy.asfortranarray(filled(numpy.float64, (5, 6, 7), source)),
        "big": filled(">i4", (9,), source),
        "text": numpy.array(["a", "longer", ""]),
        "time": numpy.array(["2001-01-02", "NaT"], dtype="M8[us]"),
        "fields": filled(numpy.dtype(fields), (11,), source),
        "aligned": numpy.zeros(3, dtype=numpy.dtype([("a", "u1"), ("b", "f8")], align=True)),
        "scalar": numpy.array(5, dtype=numpy.int16),
        "long": filled(numpy.complex64, (3, 3), source),
    }


def write_npy(path, source):
    numpy.save(path, npy_arrays(source)["fields"])


def read_npy(path):
    return {pathlib.Path(path).stem: numpy.load(path, allow_pickle=False)}


def write_npz(path, source):
    save = numpy.savez if source.integers(2) else numpy.savez_compressed
    save(path, **npy_arrays(source))


def read_npz(path):
    with numpy.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


FORMATS = {
    "safetensors": (write_safetensors, read_safetensors),
    "gguf": (write_gguf, read_gguf),
    "npy": (write_npy, read_npy),
    "npz": (write_npz, read_npz),
}


def known_types(path):
    """The quantized types that ``diorite`` reads with the sizes of the peer; prints those that it does not read."""
    known = set()
    for kind, (items, size) in gguf.GGML_QUANT_SIZES.items():
        writer = gguf.GGUFWriter(str(path), "test")
        dtype = {1: None}.get(items, kind)
        if dtype is not None:
            writer.add_tensor("t", numpy.zeros((3, size), dtype=numpy.uint8), raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        writer.close()
        if dtype is None:
            continue
        try:
            info = diorite.load_header(path)["t"]
        except diorite.CorruptError as error:
            print(f"{kind.name}: {error}")
            continue
        assert (info.dtype, info.shape, info.nbytes) == (kind.name, (3, items), 3 * size), info
        known.add(kind.name)
    return known


def normal(name, array):
    """An array of ``diorite`` as the peer shows it: GGUF's reader shows bfloat16 as bytes."""
    if name == "gguf" and array.dtype == ml_dtypes.bfloat16:
        return array.view(numpy.uint8)
    return array


def compare_whole(directory, rounds):
    for name, (write, read) in FORMATS.items():
        for seed in range(rounds):
            path = directory / f"whole.{name}"
            write(path, numpy.random.default_rng(seed))
            expected = read(path)
            for direct in (None, False, "preferred", True):
                try:
                    found = diorite.load(path, direct=direct)
                except OSError as error:
                    assert direct is True and "direct I/O" in str(error), error
                    continue
                assert set(found) == set(expected), name
                for key, array in expected.items():
                    same(normal(name, found[key]), array, (name, key))
        print(f"{name}: {rounds} files are equal, each in four ways")


def damaged(content, random_source):
    """One mutation: cut, extended, a flipped bit, an extreme number, or random bytes; mostly in the header or the end."""
    content = bytearray(content)
    near = min(len(content), 1500)
    at = random_source.randrange(near) if random_source.random() < 0.7 else len(content) - 1 - random_source.randrange(near)
    kind = random_source.randrange(5)
    if kind == 0:
        del content[at:]
    elif kind == 1:
        content[at:at] = random_source.randbytes(random_source.randrange(1, 40))
    elif kind == 2:
        content[at] ^= 1 << random_source.randrange(8)
    elif kind == 3:
        number = random_source.choice([0, 2**64 - 1, 2**63, 2**32, 2**31 - 1, random_source.randrange(1000)])
        content[at : at + 8] = number.to_bytes(8, "little")
    else:
        for _ in range(4):
            content[random_source.randrange(near)] = random_source.randrange(256)
    return bytes(content)


def compare_damaged(directory):
    random_source = random.Random(1)
    for name, (write, read) in FORMATS.items():
        counts = collections.Counter()
        for case in range(CASES // len(FORMATS)):
            path = directory / f"damaged.{name}"
            write(path, numpy.random.default_rng(case))
            path.write_bytes(damaged(path.read_bytes(), random_source))
            try:
                expected = read(path)
            except Exception:
                expected = None
            try:
                found = diorite.load(path)
            except OSError as error:
                assert str(path) in str(error), error
                counts["both refuse" if expected is None else "only diorite refuses"] += 1
                continue
            if expected is None:
                counts["only the peer refuses"] += 1
                continue
            assert set(found) == set(expected), (name, case)
            for key, array in expected.items():
                same(normal(name, found[key]), array, (name, case, key))
            counts["both load the same"] += 1
        print(f"{name}: {dict(counts)}")
        assert name != "safetensors" or not counts["only the peer refuses"]


with tempfile.TemporaryDirectory(dir=".") as made:
    directory = pathlib.Path(made).resolve()
    KNOWN = known_types(directory / "types.gguf")
    print(f"{len(KNOWN)} quantized types of gguf have the same sizes")
    compare_whole(directory, 10)
    compare_damaged(directory)
