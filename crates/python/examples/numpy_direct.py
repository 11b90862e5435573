"""Sum a file with numpy. Direct I/O fills the arrays without a copy: numpy_direct.py IMAGE PATH"""

import sys

import numpy

import diorite

CHUNK = 1 << 20


def main():
    image, path = sys.argv[1:]
    with diorite.Filesystem(image, read_only=True) as fs, fs.open(path, buffering=0, direct=True) as file:
        memory = file.buffer(CHUNK)
        array = numpy.frombuffer(memory, dtype=numpy.uint8)
        before, total, offset = fs.stats().bytes_copied, 0, 0
        while offset < file.size:
            got = file.readinto_at(memory, offset)
            total += int(array[:got].sum(dtype=numpy.uint64))
            offset += got
        print(f"sum {total} of {offset} bytes, {fs.stats().bytes_copied - before} bytes copied")


if __name__ == "__main__":
    main()
