"""First use: helpful errors, the version, the command."""

import errno
import os
import subprocess
import sys

import pytest

import diorite


def test_an_image_that_is_open_says_so(tmp_path):
    image = tmp_path / "a.img"
    with diorite.Filesystem.create(image, 8 << 20):
        with pytest.raises(OSError) as caught:
            diorite.Filesystem(image)
    assert caught.value.errno == errno.EBUSY
    assert "locked by this process" in str(caught.value) and "another name" not in str(caught.value)


def test_a_directory_is_no_image(tmp_path):
    for call in (diorite.Filesystem, diorite.open_raw, lambda path: diorite.mkfs(path, force=True)):
        with pytest.raises(IsADirectoryError) as caught:
            call(str(tmp_path))
        assert caught.value.filename == str(tmp_path)


def test_a_size_that_is_too_small_is_named(tmp_path):
    with pytest.raises(OSError) as caught:
        diorite.mkfs(tmp_path / "a.img", 1024)
    assert "1024 bytes are too few" in str(caught.value)
    assert "(-" not in str(caught.value)
    with pytest.raises(OSError) as caught:
        diorite.mkfs(tmp_path / "a.img", 1 << 20, inodes=1 << 20)
    assert "(inodes)" in str(caught.value) and "(-" not in str(caught.value)


def test_errors_have_the_name_of_the_file(tmp_path):
    missing, image = str(tmp_path / "missing.img"), str(tmp_path / "a.img")
    (tmp_path / "zeros.img").write_bytes(bytes(1 << 20))
    cases = [
        (missing, lambda: diorite.Filesystem(missing)),
        (missing, lambda: diorite.open_raw(missing)),
        (missing, lambda: diorite.open_host(missing)),
        (missing, lambda: diorite.mkfs(missing)),
        (image, lambda: diorite.mkfs(image, 1024)),
        (str(tmp_path / "zeros.img"), lambda: diorite.Filesystem(str(tmp_path / "zeros.img"))),
    ]
    with diorite.Filesystem.create(image, 8 << 20) as fs:
        for name in ("/missing", "/missing/below"):
            for call in (fs.open, fs.stat, fs.remove, fs.listdir, fs.rmdir, fs.readlink, fs.read_bytes):
                with pytest.raises(OSError) as caught:
                    call(name)
                assert caught.value.filename == name, call
    for name, call in cases:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.filename == name, str(caught.value)
        assert str(caught.value).count(name) == 1, str(caught.value)


def test_the_version_is_known():
    assert diorite.__version__[0].isdigit() and diorite.__version__.count(".") == 2


def test_the_module_runs_the_program(tmp_path):
    def run(*words):
        command = [sys.executable, "-m", "diorite", *words]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)})

    missing = run("ls", "disk.img")
    assert missing.returncode == 1 and "install a wheel" in missing.stderr, missing.stderr
    stand_in = tmp_path / "diorite"
    stand_in.write_text('#!/bin/sh\nprintf "%s|" "$@"; exit 7\n')
    stand_in.chmod(0o755)
    ran = run("ls", "a name")
    assert (ran.returncode, ran.stdout) == (7, "ls|a name|"), ran.stderr


def test_numpy_fromfile_says_what_to_do_instead(fs):
    numpy = pytest.importorskip("numpy")
    fs.write_bytes("/data", bytes(4096))
    with fs.open("/data") as file:
        with pytest.raises(OSError, match="readinto"):
            numpy.fromfile(file, dtype="u1")
        array = numpy.empty(4096, dtype="u1")
        assert file.readinto(array) == 4096
