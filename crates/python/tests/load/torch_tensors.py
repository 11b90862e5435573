"""Tensors of torch by ``diorite.load``; ``cargo xtask load`` runs it, because torch is a large package."""

import gc
import json
import struct

import numpy
import torch

import diorite


def test_tensors_of_torch(tmp_path):
    source = numpy.random.default_rng(1)
    arrays = {
        "f64": source.standard_normal((300, 400)),
        "f16": source.standard_normal((5, 7)).astype(numpy.float16),
        "i32": source.integers(-9, 9, (2, 3, 4), dtype=numpy.int32),
        "flag": numpy.array(True),
        "empty": numpy.zeros((3, 0), dtype=numpy.float32),
    }
    dtypes = {"f64": "F64", "f16": "F16", "i32": "I32", "flag": "BOOL", "empty": "F32", "bf16": "BF16", "f8": "F8_E4M3"}
    raw = {"bf16": numpy.array([0x3F80, 0xC000], dtype=numpy.uint16), "f8": numpy.array([0x38, 0xC0], dtype=numpy.uint8)}
    header, data = {}, b""
    for name, array in (arrays | raw).items():
        content = array.tobytes()
        header[name] = {"dtype": dtypes[name], "shape": array.shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    loaded = diorite.load(path, framework="torch")
    for name, array in arrays.items():
        assert torch.equal(loaded[name], torch.from_numpy(array.copy())), name
    assert loaded["bf16"].dtype is torch.bfloat16 and loaded["bf16"].float().tolist() == [1.0, -2.0]
    if hasattr(torch, "float8_e4m3fn"):
        assert loaded["f8"].dtype is torch.float8_e4m3fn and loaded["f8"].float().tolist() == [1.0, -2.0]
    else:
        assert loaded["f8"].dtype is torch.uint8
    kept = loaded["f64"]
    del loaded
    gc.collect()
    assert torch.equal(kept, torch.from_numpy(arrays["f64"]))
    kept.zero_()
    assert path.read_bytes()[8 + len(text) :] == data
