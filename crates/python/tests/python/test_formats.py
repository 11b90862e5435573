"""Python's modules for file formats work on files of a volume."""

import csv
import gzip
import io
import json
import pickle
import tarfile
import zipfile

import pytest


def test_csv_and_json(fs):
    with fs.open("/t.csv", "w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], ["1", "two\nlines"]])
    with fs.open("/t.csv", "r", newline="") as file:
        assert list(csv.DictReader(file)) == [{"a": "1", "b": "two\nlines"}]
    with fs.open("/t.json", "w", encoding="utf-8") as file:
        json.dump({"ä": [1, 2.5, None]}, file, ensure_ascii=False)
    with fs.open("/t.json") as file:
        assert json.load(file) == {"ä": [1, 2.5, None]}


@pytest.mark.parametrize("direct", [False, True])
def test_archives_and_pickles(fs, direct):
    with fs.open("/a.zip", "w+b", direct=direct) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", "text" * 1000)
    with fs.open("/a.zip", direct=direct) as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None and archive.read("inner.txt") == b"text" * 1000
    with fs.open("/a.tar", "wb", direct=direct) as file, tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("member")
        member.size = 10_000
        archive.addfile(member, io.BytesIO(bytes(10_000)))
    with fs.open("/a.tar", direct=direct) as file, tarfile.open(fileobj=file) as archive:
        assert archive.extractfile("member").read() == bytes(10_000)
    with fs.open("/a.gz", "wb", direct=direct) as file, gzip.open(file, "wt") as text:
        text.write("line\n" * 9999)
    with fs.open("/a.gz", direct=direct) as file, gzip.open(file, "rt") as text:
        assert sum(1 for _ in text) == 9999
    with fs.open("/a.pickle", "wb", direct=direct) as file:
        pickle.dump(list(range(1000)), file)
    with fs.open("/a.pickle", direct=direct) as file:
        assert pickle.load(file) == list(range(1000))


def test_arrays(fs):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed (python3-numpy)")
    array = numpy.arange(100_000, dtype="f8").reshape(100, -1)
    try:
        numpy.save(io.BufferedWriter(io.BytesIO()), array)
        buffering = -1
    except io.UnsupportedOperation:
        # Older versions assume that every buffered file has a descriptor.
        buffering = 0
    with fs.open("/a.npy", "wb", buffering) as file:
        numpy.save(file, array)
    with fs.open("/a.npy", "rb", buffering, direct=True, unaligned="bounce") as file:
        assert (numpy.load(file) == array).all()
    with fs.open("/a.npz", "wb") as file:
        numpy.savez(file, x=array)
    with fs.open("/a.npz") as file:
        assert (numpy.load(file)["x"] == array).all()
