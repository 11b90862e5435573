"""``diorite.load``: arrays that NumPy wrote, and files of this test's own writer."""

import gc
import json
import os
import signal
import struct
import subprocess
import sys

import pytest

import diorite

numpy = pytest.importorskip("numpy", reason="numpy is not installed (python3-numpy)")


def write_safetensors(path, arrays, dtypes=None):
    """Write a file: arrays by name, with the names of their dtypes."""
    header, data = {"__metadata__": {"format": "np"}}, b""
    for name, array in arrays.items():
        dtype = (dtypes or {}).get(name) or {"f": "F", "i": "I", "u": "U", "b": "BOOL"}[array.dtype.kind]
        if dtype in ("F", "I", "U"):
            dtype += str(array.dtype.itemsize * 8)
        content = array.tobytes()
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture
def arrays():
    random = numpy.random.default_rng(1)
    return {
        "big": random.standard_normal((700, 900)),
        "odd": random.integers(0, 255, 3, dtype=numpy.uint8),
        "layers.0.w": random.standard_normal((5, 7)).astype(numpy.float16),
        "layers.1.w": random.integers(-9, 9, (2, 3, 4), dtype=numpy.int32),
        "flag": numpy.array(True),
        "empty": numpy.zeros((3, 0), dtype=numpy.float32),
    }


@pytest.fixture
def model(tmp_path, arrays):
    return write_safetensors(tmp_path / "model.safetensors", arrays)


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("direct", [None, False, "preferred"])
def test_arrays_are_equal_and_private(model, arrays, direct):
    before = model.read_bytes()
    loaded = diorite.load(model, direct=direct)
    assert list(loaded) == list(arrays) and loaded.metadata == {"format": "np"}
    for name, array in arrays.items():
        same(loaded[name], array)
    loaded["big"][0, 0] = 7
    big = loaded["big"]
    moved = loaded.stats
    assert moved.bytes_direct + moved.bytes_mapped + moved.bytes_buffered >= sum(a.nbytes for a in arrays.values())
    assert moved.bytes_copied == moved.bytes_buffered
    del loaded
    gc.collect()
    assert big[0, 0] == 7 and big[1:].tobytes() == arrays["big"][1:].tobytes()
    assert model.read_bytes() == before


def test_header_and_names(model, arrays, tmp_path):
    header = diorite.load_header(model)
    assert {name: info.shape for name, info in header.items()} == {name: a.shape for name, a in arrays.items()}
    assert header["layers.0.w"].dtype == "F16" and header["big"].nbytes == arrays["big"].nbytes
    assert header["odd"].file == str(model) and header.stats is None and not header["odd"].compressed
    assert set(diorite.load(model, "layers.*")) == {"layers.0.w", "layers.1.w"}
    assert set(diorite.load([model], ["odd", "*.1.*"])) == {"odd", "layers.1.w"}
    assert diorite.load(model, []) == {}
    with pytest.raises(KeyError, match="layers.2"):
        diorite.load(model, "layers.2.*")
    with pytest.raises(FileNotFoundError):
        diorite.load(tmp_path / "absent.safetensors")
    with pytest.raises(ValueError, match="framework"):
        diorite.load(model, framework="tensorflow")


def test_damage_names_the_file_and_the_tensor(model):
    whole = model.read_bytes()
    model.write_bytes(whole[:-1])
    with pytest.raises(diorite.CorruptError, match="reaches byte") as raised:
        diorite.load(model)
    assert raised.value.filename == str(model) and "tensor" in str(raised.value)
    other = model.with_suffix(".bin")
    other.write_bytes(b"neither of the formats")
    with pytest.raises(OSError, match="convert it"):
        diorite.load(other)


def test_what_numpy_saved(tmp_path):
    structure = numpy.zeros(4, dtype=[("a", "<f4"), ("b", ">i2", (2, 3)), ("c", "S3")])
    structure["b"] = numpy.arange(24).reshape(4, 2, 3)
    saved = {
        "f": numpy.asfortranarray(numpy.arange(35.0).reshape(5, 7)),
        "big": numpy.arange(5, dtype=">i4"),
        "text": numpy.array(["a", "long"]),
        "time": numpy.array(["2001-02-03", "2026-11-28"], dtype="M8[s]"),
        "complex": numpy.arange(3) * 1j,
        "structure": structure,
    }
    for name, array in saved.items():
        numpy.save(tmp_path / f"{name}.npy", array)
        loaded = diorite.load(tmp_path / f"{name}.npy")[name]
        assert loaded.dtype == array.dtype and (loaded == array).all() and loaded.strides == array.strides
    for save in (numpy.savez, numpy.savez_compressed):
        save(tmp_path / "all.npz", **saved)
        loaded = diorite.load(tmp_path / "all.npz")
        assert set(loaded) == set(saved)
        for name, array in saved.items():
            assert loaded[name].dtype == array.dtype and (loaded[name] == array).all()
    assert loaded.stats.bytes_copied >= sum(array.nbytes for array in saved.values())
    numpy.save(tmp_path / "objects.npy", numpy.array([{}]), allow_pickle=True)
    with pytest.raises(OSError, match="pickle"):
        diorite.load(tmp_path / "objects.npy")


def test_types_that_numpy_does_not_have(tmp_path):
    raw = {"b": numpy.array([0x3F80, 0xC000], dtype=numpy.uint16), "f": numpy.array([0x38, 0xC0], dtype=numpy.uint8)}
    path = write_safetensors(tmp_path / "m.safetensors", raw, {"b": "BF16", "f": "F8_E4M3"})
    loaded = diorite.load(path)
    for name, array in raw.items():
        assert loaded[name].view(array.dtype).tobytes() == array.tobytes()
    if loaded["b"].dtype != numpy.uint16:
        assert loaded["b"].astype(float).tolist() == [1.0, -2.0] and loaded["f"].astype(float).tolist() == [1.0, -2.0]


def test_dlpack(model, arrays):
    loaded = diorite.load(model, framework=None)
    tensor = loaded["big"]
    assert tensor.dtype == "F64" and tensor.shape == (700, 900) and tensor.nbytes == 700 * 900 * 8
    assert tensor.__dlpack_device__() == (1, 0) and "F64" in repr(tensor)
    for name in ("big", "layers.0.w", "layers.1.w", "odd"):
        shared = numpy.from_dlpack(loaded[name])
        same(shared, arrays[name])
    for version in (None, (1, 0), (1, 1)):
        capsule = tensor.__dlpack__(max_version=version)
        name = "dltensor" if version is None else "dltensor_versioned"
        assert f'"{name}"' in repr(capsule)
        # A capsule without a consumer frees its export.
        del capsule
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=True)
    shared = numpy.from_dlpack(tensor)
    del loaded, tensor
    gc.collect()
    same(shared, arrays["big"])


def test_an_index_and_files_in_an_image(tmp_path, image, arrays):
    one, two = dict(list(arrays.items())[:2]), dict(list(arrays.items())[2:])
    with diorite.Filesystem(image) as fs:
        for number, part in ((1, one), (2, two)):
            fs.write_bytes(f"/m-{number}.safetensors", write_safetensors(tmp_path / f"m-{number}.safetensors", part).read_bytes())
        places = {name: "m-1.safetensors" for name in one} | {name: "m-2.safetensors" for name in two}
        index = json.dumps({"weight_map": places})
        fs.write_text("/m.safetensors.index.json", index)
    (tmp_path / "m.safetensors.index.json").write_text(index)
    for path in (tmp_path / "m.safetensors.index.json", f"{image}:/m.safetensors.index.json"):
        loaded = diorite.load(path)
        assert set(loaded) == set(arrays)
        for name, array in arrays.items():
            same(loaded[name], array)
        assert loaded.stats.bytes_copied == loaded.stats.bytes_buffered


def test_progress_and_interrupts(model, arrays):
    calls = []
    diorite.load(model, direct="preferred", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] > 0 and calls == sorted(calls)

    def interrupt(done, total):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        diorite.load(model, progress=interrupt)

    def fail(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        diorite.load(model, progress=fail)


def test_pinned_memory_needs_cuda(model):
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            diorite.load(model, pin=True)


def test_memory_of_the_caller(model, arrays):
    """The way of pinned memory, with memory that any object allocates."""
    files = diorite._diorite.TensorFiles([model])
    memory = []

    def allocate(size):
        memory.append(bytearray(size))
        return memory[0]

    tensors, stats = files.load(None, None, allocate)
    del files
    same(numpy.asarray(tensors[0]), arrays["big"])
    with pytest.raises(BufferError):
        memory[0].clear()
    del tensors
    gc.collect()
    memory[0].clear()


def test_the_page(examples, tmp_path, arrays):
    """The first program in docs/load.md runs without changes beside a model of that name."""
    text = (examples.parents[2] / "docs/load.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    write_safetensors(tmp_path / "model.safetensors", {"layers.0.weight": arrays["big"]})
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("(700, 900) ")
