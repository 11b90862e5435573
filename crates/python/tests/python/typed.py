"""The types of the stub. test_stub.py runs mypy on this program."""

import io
from typing import IO, Any
from typing_extensions import assert_type

import diorite

with diorite.Filesystem("disk.img") as fs:
    assert_type(fs.open("/data"), io.BufferedReader)
    assert_type(fs.open("/data", "wb"), io.BufferedWriter)
    assert_type(fs.open("/data", "r+b"), io.BufferedRandom)
    assert_type(fs.open("/data", "rt", encoding="utf-8"), io.TextIOWrapper)
    assert_type(fs.open("/data", "rb", 0), diorite.File)
    assert_type(fs.open("/data", buffering=0, direct=True), diorite.File)
    assert_type((fs / "data").open(), io.TextIOWrapper)
    assert_type((fs / "data").open("rb"), io.BufferedReader)

    def any_mode(mode: str) -> diorite.File | IO[Any]:
        return fs.open("/data", mode)

    with fs.open("/data", buffering=0, direct="preferred") as file:
        memory = file.buffer(1 << 20)
        assert_type(file.readinto_at(memory, 0), int)

assert_type(diorite.open_host("data"), io.BufferedReader)
assert_type(diorite.open_raw("disk.img", "r+b", 0), diorite.File)
assert_type(diorite.__version__, str)


async def read(file: diorite.File) -> int:
    async with diorite.AsyncQueue(file) as queue:
        return await queue.read(bytearray(4096), 0)

assert_type(diorite.load("model.gguf", framework=None), "diorite.Tensors[diorite.Tensor]")
assert_type(diorite.load_header(["a.npy"])["a"].shape, tuple[int, ...])
