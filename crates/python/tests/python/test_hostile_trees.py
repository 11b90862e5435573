"""Directory loops: walks of them did not end."""

import shutil
import subprocess

import pytest

import diorite

DEBUGFS = shutil.which("debugfs") or shutil.which("debugfs", path="/usr/sbin:/sbin")


@pytest.fixture
def looping(tmp_path):
    """A volume whose entry `/a/b/loop` leads to `/a`, and `/twin` to `/a/b`."""
    if DEBUGFS is None:
        pytest.skip("debugfs is not installed")
    image = tmp_path / "loop.img"
    with diorite.Filesystem.create(image, 8 << 20) as fs:
        fs.makedirs("/a/b")
        fs.write_bytes("/a/b/file", b"x")
    for target, name in (("/a", "/a/b/loop"), ("/a/b", "/twin")):
        subprocess.run([DEBUGFS, "-w", "-R", f"link {target} {name}", image], check=True, capture_output=True)
    with diorite.Filesystem(image, read_only=True) as fs:
        assert fs.stat("/a/b/loop").st_ino == fs.stat("/a").st_ino and fs.stat("/twin").st_ino == fs.stat("/a/b").st_ino
        yield fs


@pytest.mark.parametrize(
    "walk",
    [
        lambda fs: fs.walk("/a"), lambda fs: fs.walk("/a", topdown=False), lambda fs: fs.walk("/a", followlinks=True),
        lambda fs: fs.walk(b"/a"), lambda fs: (fs / "a").walk(), lambda fs: (fs / "a").glob("**"), lambda fs: (fs / "a").rglob("file"),
        lambda fs: (fs / "a").glob("**/b/*/x"),
    ],
)
def test_a_walk_in_a_circle_is_an_error(looping, walk):
    with pytest.raises(diorite.CorruptError, match="more than one name") as error:
        for count, _ in enumerate(walk(looping)):
            assert count < 50
    assert error.value.kind == "Corrupt" and error.value.filename


def test_fsspec_does_not_go_in_a_circle(looping, tmp_path):
    pytest.importorskip("fsspec", reason="fsspec is not installed (python3-fsspec)")
    from diorite.fsspec import DioriteFileSystem

    fs = DioriteFileSystem(fo=looping.target, read_only=True)
    try:
        for call in (fs.find, fs.du, lambda path: fs.get(path, str(tmp_path / "out"), recursive=True), lambda path: list(fs.walk(path))):
            with pytest.raises(diorite.CorruptError, match="more than one name"):
                call("/a")
        assert fs.find("/a/b", maxdepth=1) == ["/a/b/file"]
    finally:
        fs.close()


def test_a_walk_may_change_the_tree(fs):
    """A moved directory, or a new one with a reused inode, has one name."""
    for name in "abc":
        fs.makedirs(f"/top/{name}/x")
    found = []
    for directory, names, _ in fs.walk("/top"):
        found.append(directory)
        if directory == "/top":
            names.sort()
        if directory == "/top/a":
            fs.rename("/top/a", "/top/b/moved")
    assert "/top/b/moved/x" in found and "/top/c/x" in found
    for directory, _, _ in fs.walk("/top", topdown=False):
        fs.rmdir(directory)
        fs.mkdir("/other") if not fs.exists("/other") else None
    assert not fs.exists("/top")
