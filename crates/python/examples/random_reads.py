"""Random direct reads of 4 KiB, 32 in flight: random_reads.py IMAGE PATH [COUNT]"""

import random
import sys
import time

import diorite

BLOCK, DEPTH = 4096, 32


def main():
    image, path = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    with diorite.Filesystem(image, read_only=True) as fs, fs.open(path, buffering=0, direct=True) as file:
        blocks = max(file.size // BLOCK, 1)
        with diorite.Queue(file, DEPTH) as queue:
            free = [file.buffer(BLOCK) for _ in range(DEPTH)]
            submitted = ended = 0
            start = time.perf_counter()
            while ended < count:
                while free and submitted < count:
                    queue.submit_read(free.pop(), random.randrange(blocks) * BLOCK)
                    submitted += 1
                for completion in queue.reap():
                    completion.result()
                    free.append(completion.buffer)
                    ended += 1
            seconds = time.perf_counter() - start
    print(f"{count} reads, {count / seconds:.0f} a second")


if __name__ == "__main__":
    main()
