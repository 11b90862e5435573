"""The loops of ``host_loop`` in Python: ``host_loop.py read|write builtin|diorite FILE MIB``."""

import json
import sys
import time

STEP = 64 << 10


def machine_seconds():
    with open("/proc/stat") as file:
        fields = [float(field) for field in file.readline().split()[1:]]
    return sum(fields[at] for at in (0, 1, 2, 5, 6)) / 100


def main(what, way, path, mib):
    if way == "builtin":
        opened = open
    else:
        import diorite

        def opened(path, mode):
            return diorite.open_host(path, mode, direct=True)

    machine, cpu, start = machine_seconds(), time.process_time(), time.monotonic()
    moved = 0
    if what == "read":
        with opened(path, "rb") as file:
            while piece := file.read(STEP):
                moved += len(piece)
    else:
        import os

        piece = b"Z" * STEP
        with opened(path, "r+b") as file:
            for _ in range((int(mib) << 20) // STEP):
                moved += file.write(piece)
            file.flush()
            if way == "builtin":
                os.fdatasync(file.fileno())
            else:
                file.raw.fdatasync()
    seconds, gb = time.monotonic() - start, moved / 1e9
    cpu, machine = (time.process_time() - cpu) / gb, (machine_seconds() - machine) / gb
    print(json.dumps({"mb_per_s": gb * 1e3 / seconds, "own_cpu_s_per_gb": cpu, "cpu_s_per_gb": machine}))


main(*sys.argv[1:])
