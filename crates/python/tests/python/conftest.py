"""Fixtures: an image, which e2fsck checks after the test."""

import os
import pathlib
import shutil
import subprocess

import pytest

import diorite


def e2fsck(image):
    """Fail unless the image is clean."""
    program = shutil.which("e2fsck") or shutil.which("e2fsck", path="/usr/sbin:/sbin")
    if program is None:
        return
    ran = subprocess.run([program, "-fn", str(image)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def image(tmp_path):
    """The path of an image with an ext4 volume of 64 MiB, which must be clean at the end."""
    path = tmp_path / "disk.img"
    diorite.mkfs(path, 64 << 20)
    yield path
    e2fsck(path)


@pytest.fixture
def fs(image):
    """The open volume."""
    with diorite.Filesystem(image) as filesystem:
        yield filesystem


@pytest.fixture
def examples():
    """The directory of the examples."""
    return pathlib.Path(os.environ["DIORITE_PYTHON_CRATE"]) / "examples"


@pytest.fixture
def data(fs):
    """A file of 4 MiB, open for direct I/O; block N of 4 KiB begins with N."""
    with fs.open("/data", "w+b", buffering=0, direct=True) as file:
        memory = file.buffer(4 << 20)
        for block in range(1024):
            memory[block * 4096 : block * 4096 + 4] = block.to_bytes(4, "little")
        assert file.pwrite(memory, 0) == len(memory)
        yield file
