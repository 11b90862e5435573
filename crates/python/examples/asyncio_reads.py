"""Random direct reads by tasks of asyncio: asyncio_reads.py IMAGE PATH [COUNT]"""

import asyncio
import random
import sys
import time

import diorite

BLOCK, TASKS = 4096, 32


async def reader(queue, file, blocks, count):
    memory = file.buffer(BLOCK)
    for _ in range(count):
        await queue.read(memory, random.randrange(blocks) * BLOCK)


async def run(file, count):
    blocks = max(file.size // BLOCK, 1)
    async with diorite.AsyncQueue(file, TASKS) as queue:
        await asyncio.gather(*(reader(queue, file, blocks, count // TASKS) for _ in range(TASKS)))


def main():
    image, path = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    with diorite.Filesystem(image, read_only=True) as fs, fs.open(path, buffering=0, direct=True) as file:
        start = time.perf_counter()
        asyncio.run(run(file, count))
        seconds = time.perf_counter() - start
    print(f"{count // TASKS * TASKS} reads, {count / seconds:.0f} a second")


if __name__ == "__main__":
    main()
