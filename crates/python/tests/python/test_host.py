"""Files of the host: what the builtin ``open`` returns, and several files on one content."""

import io
import os
import random
import threading

import pytest

import diorite

MIB = 1 << 20
CACHES = [{"cache": True}, {"cache": False}, {"direct": "preferred"}, {}]


@pytest.mark.parametrize("mode", ["r", "w", "x", "a", "r+", "w+", "a+", "rb", "wb", "xb", "ab", "r+b", "w+b", "x+b", "a+b", "rt", "wt"])
@pytest.mark.parametrize("buffering", [-1, 0, 1, 5000])
def test_the_result_is_that_of_open(tmp_path, mode, buffering):
    def outcome(function, name, **arguments):
        path = tmp_path / name
        if "x" not in mode:
            path.write_bytes(b"one\ntwo\n")
        try:
            with function(path, mode, buffering, **arguments) as file:
                raw = file if buffering == 0 else getattr(file, "buffer", file).raw
                assert isinstance(raw, io.RawIOBase)
                kind = io.RawIOBase if buffering == 0 else type(file)
                able = file.readable(), file.writable(), file.seekable()
                line_buffering = getattr(file, "line_buffering", None)
                start = file.tell()
                content = file.read() if file.readable() and not file.writable() else None
                if file.writable():
                    file.write(b"three\n" if "b" in mode else "three\n")
            return kind, able, line_buffering, start, content, path.read_bytes(), file.mode
        except (OSError, ValueError) as error:
            return type(error)

    with pytest.warns(RuntimeWarning) if buffering == 1 and "b" in mode else pytest.MonkeyPatch.context():
        expected = outcome(open, "expected")
        for number, arguments in enumerate(CACHES):
            assert outcome(diorite.open_host, f"found{number}", **arguments) == expected, arguments


def test_wrong_arguments(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(ValueError, match="bypasses the cache"):
        diorite.open_host(path, "wb", cache=True, direct=True)
    assert not path.exists()
    with pytest.raises(IsADirectoryError):
        diorite.open_host(tmp_path)


@pytest.mark.parametrize("arguments", CACHES)
def test_a_loop_reads_and_writes_what_open_does(tmp_path, arguments):
    path = tmp_path / "file"
    data = random.Random(1).randbytes(3 * MIB + 777)
    for step in (1000, 65536, 100_001):
        with diorite.open_host(path, "wb", **arguments) as file:
            for at in range(0, len(data), step):
                assert file.write(data[at : at + step]) == len(data[at : at + step])
        assert path.read_bytes() == data
        for buffering in (-1, 0):
            found = bytearray()
            with diorite.open_host(path, "rb", buffering, **{"unaligned": "bounce", **arguments}) as file:
                memory = bytearray(step)
                while got := file.readinto(memory):
                    found += memory[:got]
            assert found == data
        with diorite.open_host(path, **arguments) as file:
            file.seek(-1000, os.SEEK_END)
            assert file.read() == data[-1000:] and file.seek(5) == 5 and file.read(10) == data[5:15]
    text = "".join(f"line {number} \u00e4\n" for number in range(20_000))
    with diorite.open_host(path, "w", encoding="utf-8", newline="\r\n", **arguments) as file:
        file.write(text)
    with open(path, encoding="utf-8", newline="") as file:
        assert file.read() == text.replace("\n", "\r\n")
    with diorite.open_host(path, "r", encoding="utf-8", **arguments) as file:
        assert list(file) == text.splitlines(keepends=True)


def test_files_on_one_file_share_their_content(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    with diorite.open_host(path, "x+b", 0) as cached:
        os.link(path, link)
        with diorite.open_host(link, "r+b", 0, cache=False) as uncached, diorite.open_host(path, "rb", 0) as reader:
            for number in range(50):
                writer = (cached, uncached)[number % 2]
                writer.pwrite(bytes([number]) * 700, number * 500)
                for file in (cached, uncached, reader):
                    assert file.pread(700, number * 500) == bytes([number]) * 700
                    assert file.size == number * 500 + 700
            uncached.truncate(10)
            assert (cached.size, reader.read()) == (10, bytes(10))
            with pytest.raises(io.UnsupportedOperation):
                reader.fileno()
    assert path.read_bytes() == bytes(10)


def test_truncate_and_append(tmp_path):
    path = tmp_path / "file"
    for arguments in CACHES:
        path.write_bytes(b"0123456789")
        with diorite.open_host(path, "r+b", **arguments) as file:
            assert file.truncate(5) == 5
            file.seek(8)
            file.write(b"x")
        assert path.read_bytes() == b"01234\0\0\0x"
        with diorite.open_host(path, "ab", **arguments) as file:
            file.write(b"end")
        assert path.read_bytes() == b"01234\0\0\0xend"


def test_other_threads_run_meanwhile(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * MIB))
    found = []

    def read():
        with diorite.open_host(path, buffering=0, cache=False) as file:
            total = 0
            while piece := file.read(65536):
                total += len(piece)
            found.append(total)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [8 * MIB] * 4


def test_a_filesystem_without_direct_io(tmp_path):
    with diorite.open_host("/proc/version", buffering=0, cache=False) as file:
        assert file.direct_refusal
    with pytest.raises(OSError, match="direct I/O"):
        diorite.open_host("/proc/version", direct=True)
    with diorite.open_host(tmp_path / "file", "wb", 0) as file:
        assert file.direct_refusal is None or isinstance(file.direct_refusal, str)
