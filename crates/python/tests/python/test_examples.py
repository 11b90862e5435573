"""The examples run without changes."""

import subprocess
import sys

import pytest

import diorite


def run(examples, name, *arguments):
    ran = subprocess.run([sys.executable, str(examples / name), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def filled(image):
    with diorite.Filesystem(image) as fs:
        fs.makedirs("/photos/2024")
        fs.write_bytes("/photos/2024/a.raw", b"raw" * 100_000)
        fs.write_text("/photos/notes.txt", "notes\n")
        fs.symlink("notes.txt", "/photos/link")
        fs.utime("/photos/notes.txt", ns=(5_000_000_000, 6_000_000_000))
    return image


def test_copy_out(examples, filled, tmp_path):
    out = run(examples, "copy_out.py", filled, "/photos", tmp_path / "photos")
    assert (tmp_path / "photos/2024/a.raw").read_bytes() == b"raw" * 100_000 and "3" in out
    assert (tmp_path / "photos/notes.txt").stat().st_mtime_ns == 6_000_000_000
    assert (tmp_path / "photos/link").read_text() == "notes\n"


@pytest.mark.parametrize("name", ["random_reads.py", "asyncio_reads.py"])
def test_random_reads(examples, filled, name):
    assert "reads" in run(examples, name, filled, "/photos/2024/a.raw", 500)


def test_numpy_direct(examples, filled):
    pytest.importorskip("numpy", reason="numpy is not installed (python3-numpy)")
    assert "0 bytes copied" in run(examples, "numpy_direct.py", filled, "/photos/2024/a.raw")


def test_the_readme(examples, image, tmp_path):
    """The program in README.md runs without changes in a directory with an image of that name."""
    text = (examples.parents[2] / "README.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    assert image == tmp_path / "disk.img"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "notes" in ran.stdout
