"""A file of a volume against a file of the host opened by the builtin `open`: each operation must have the same result."""

import errno
import io
import os

import pytest

MODES = ["rb", "r+b", "wb", "w+b", "xb", "x+b", "ab", "a+b", "r", "r+", "w", "w+", "x", "a", "a+", "rt", "wt"]
WRONG = ["", "b", "rw", "rbt", "z", "rr", "U", "r++", "bb", "+", "+b", "rwb", 5]
BUFFERINGS = [-1, 0, 1, 2, 16, 100_000]
CONTENT = b"first line\nsecond\r\nthird \xc3\xa4\n\nlast without end"

# Each function gets the open file and returns the compared result.
OPERATIONS = [
    lambda f: f.read(),
    lambda f: f.read(5),
    lambda f: f.read(0),
    lambda f: f.read(-1),
    lambda f: f.read(None),
    lambda f: (f.read(3), f.tell(), f.read(4), f.tell()),
    lambda f: f.readline(),
    lambda f: f.readline(3),
    lambda f: f.readlines(),
    lambda f: list(f),
    lambda f: next(f),
    lambda f: (f.seek(4), f.read(3)),
    lambda f: (f.seek(0, 2), f.read()),
    lambda f: (f.seek(-4, 2), f.read()),
    lambda f: (f.seek(2), f.seek(3, 1), f.read(2)),
    lambda f: f.seek(-1),
    lambda f: f.seek(-100, 1),
    lambda f: f.seek(-1000, 2),
    lambda f: f.seek(0, 99),
    lambda f: (f.seek(1000), f.read(), f.tell()),
    lambda f: f.seek("x"),
    lambda f: f.tell(),
    lambda f: f.write(b"XY"),
    lambda f: f.write("XY"),
    lambda f: f.write(bytearray(b"array")),
    lambda f: f.write(memoryview(b"view")[::1]),
    lambda f: f.write(memoryview(b"steps!")[::2]),
    lambda f: f.write(None),
    lambda f: f.write(7),
    lambda f: (f.write(b"XY"), f.tell(), f.flush(), f.seek(0), f.read()),
    lambda f: (f.write("XY"), f.flush(), f.seek(0), f.read()),
    lambda f: (f.seek(3), f.write(b"!"), f.flush(), f.seek(0), f.read()),
    lambda f: (f.seek(100), f.write(b"far"), f.flush(), f.tell()),
    lambda f: (f.read(2), f.write(b"mixed"), f.flush(), f.tell()),
    lambda f: f.writelines([b"a", b"b"]),
    lambda f: f.writelines(["a", "b"]),
    lambda f: f.truncate(),
    lambda f: f.truncate(7),
    lambda f: (f.truncate(70), f.tell()),
    lambda f: f.truncate(-1),
    lambda f: (f.seek(5), f.truncate(), f.tell()),
    lambda f: (f.seek(5), f.truncate(2), f.tell(), f.write(b"x")),
    lambda f: f.readinto(bytearray(9)),
    lambda f: f.readinto(b"constant"),
    lambda f: f.readinto(bytearray(0)),
    lambda f: f.readinto1(bytearray(9)),
    lambda f: f.read1(9),
    lambda f: f.readall(),
    lambda f: f.peek(3)[:3],
    lambda f: f.readable(),
    lambda f: f.writable(),
    lambda f: f.seekable(),
    lambda f: f.isatty(),
    lambda f: f.closed,
    lambda f: f.mode,
    lambda f: f.flush(),
    lambda f: f.newlines,
    lambda f: f.line_buffering,
    lambda f: type(f) if isinstance(f, (io.BufferedIOBase, io.TextIOBase)) else isinstance(f, io.RawIOBase),
    lambda f: (f.close(), f.close(), f.closed),
    lambda f: (f.close(), f.read()),
    lambda f: (f.close(), f.write(b"")),
    lambda f: (f.close(), f.write("")),
    lambda f: (f.close(), f.seek(0)),
    lambda f: (f.close(), f.tell()),
    lambda f: (f.close(), f.readable()),
    lambda f: (f.close(), f.truncate(1)),
    lambda f: (f.close(), f.flush()),
    lambda f: (f.close(), f.readinto(bytearray(1))),
    lambda f: (f.close(), list(f)),
    lambda f: (f.close(), f.__enter__()),
    lambda f: (f.__exit__(None, None, None), f.closed),
    lambda f: f.detach() is not None,
    lambda f: (f.seek(3), f.readlines(4), f.tell()),
]


def outcome(call):
    """The result of a call, or the class and number of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error), getattr(error, "errno", None)


def both(fs, tmp_path, exists):
    """The two open functions, and the two functions that read the result."""
    path = tmp_path / "twin"
    if exists:
        path.write_bytes(CONTENT)
        fs.write_bytes("/twin", CONTENT)

    def ours(*arguments, **keywords):
        return fs.open("/twin", *arguments, **keywords)

    def theirs(*arguments, **keywords):
        return open(path, *arguments, **keywords)

    def remove():
        path.unlink(missing_ok=True)
        if fs.exists("/twin"):
            fs.remove("/twin")

    def content():
        assert fs.exists("/twin") == path.exists()
        return (fs.read_bytes("/twin"), path.read_bytes()) if path.exists() else (None, None)

    return ours, theirs, content, remove


@pytest.mark.filterwarnings("ignore:line buffering")
@pytest.mark.parametrize("exists", [True, False], ids=["there", "missing"])
@pytest.mark.parametrize("buffering", BUFFERINGS)
@pytest.mark.parametrize("mode", MODES)
def test_operation(fs, tmp_path, mode, buffering, exists):
    differences = []
    for number, operation in enumerate(OPERATIONS):
        ours, theirs, content, remove = both(fs, tmp_path, exists)
        opened = [outcome(lambda: way(mode, buffering)) for way in (theirs, ours)]
        if buffering == 0 and "b" not in mode:
            # Here the error comes before the file is created or truncated.
            assert opened[1] == (ValueError, None)
            remove()
            return
        if isinstance(opened[0], tuple):
            assert opened[0] == opened[1]
            remove()
            return
        ends = [outcome(lambda: operation(file)) for file in opened]
        for file in opened:
            outcome(file.close)
        contents = content()
        remove()
        if ends[0] != ends[1] or contents[0] != contents[1]:
            differences.append((number, *ends, *contents))
    assert differences == []


@pytest.mark.parametrize("mode", WRONG)
def test_wrong_modes(fs, tmp_path, mode):
    ours, theirs, _, _ = both(fs, tmp_path, True)
    assert outcome(lambda: ours(mode)) == outcome(lambda: theirs(mode))


@pytest.mark.parametrize(
    "keywords",
    [{"encoding": "latin-1"}, {"encoding": "no-such"}, {"errors": "replace"}, {"newline": ""}, {"newline": "\r\n"}, {"newline": "x"},
     {"encoding": "ascii"}],
)
@pytest.mark.parametrize("mode", ["r", "rb", "w"])
def test_text(fs, tmp_path, mode, keywords):
    ours, theirs, content, _ = both(fs, tmp_path, True)
    ends = []
    for way in (theirs, ours):

        def use():
            with way(mode, **keywords) as file:
                return file.read() if mode == "r" else file.write("a\nb\xe4")

        ends.append(outcome(use))
    assert ends[0] == ends[1]
    mine, host = content()
    assert mine == host


def test_a_path_that_is_a_directory_or_leads_nowhere(fs, tmp_path):
    fs.mkdir("/dir")
    for mode in ("rb", "wb", "ab", "r+b"):
        with pytest.raises(IsADirectoryError) as error:
            fs.open("/dir", mode)
        assert error.value.errno == errno.EISDIR and error.value.filename == "/dir"
        assert outcome(lambda: open(tmp_path, mode))[0] is IsADirectoryError
    with pytest.raises(FileNotFoundError):
        fs.open("/no/such")
    with pytest.raises(NotADirectoryError):
        fs.write_bytes("/file", b"")
        fs.open("/file/below")
    with pytest.raises(ValueError, match="null byte"):
        fs.open("a\0b")
    with pytest.raises(TypeError):
        fs.open(7.5)


def test_fileno_is_unsupported(fs):
    with fs.open("/x", "wb") as file, pytest.raises(io.UnsupportedOperation):
        file.fileno()


def test_a_direct_file_that_is_buffered_takes_any_transfer(fs):
    with fs.open("/x", "w+b", direct=True) as file:
        for line in range(1000):
            file.write(b"line %d\n" % line)
        file.seek(0)
        assert file.readlines()[777] == b"line 777\n"
    with fs.open("/x", "r", direct=True) as file:
        assert sum(1 for _ in file) == 1000
    with fs.open("/x", "rb", buffering=0, direct=True) as file:
        assert file.read() == fs.read_bytes("/x")
        assert file.seek(0, os.SEEK_HOLE) == file.size


def test_an_append_goes_to_the_end_wherever_it_is(fs):
    with fs.open("/log", "ab", buffering=0) as one, fs.open("/log", "ab", buffering=0) as two:
        one.write(b"1")
        two.write(b"2")
        one.write(b"3")
        assert one.append(b"4") == 3
    assert fs.read_bytes("/log") == b"1234"
