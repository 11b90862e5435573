"""Rows of README's table on two builds of Diorite, interleaved: python3 run.py OLD/target/release NEW/target/release SCRATCH ROUNDS

Each round runs both, in turns which first. The ratio new / old of each round is kept; above 1 is better for rates, below 1 for times.
"""
import json, os, statistics, subprocess, sys

OLD, NEW, SCRATCH, ROUNDS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = os.path.join(HERE, "../direct")
IMAGE = os.path.join(SCRATCH, "before-after.img")
RAW = open(os.path.join(HERE, "rounds.jsonl"), "w")


def call(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def image(kind, bytes, *more):
    """A formatted image whose blocks are all allocated on the host."""
    if not os.path.exists(IMAGE) or os.path.getsize(IMAGE) != bytes:
        call("rm", "-f", IMAGE)
        call("dd", "if=/dev/zero", f"of={IMAGE}", "bs=1M", f"count={bytes >> 20}", "oflag=direct")
    call("mke2fs", "-Fq", "-t", kind, "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", *more, IMAGE)


def job(name, pinned):
    def run(build):
        pin = ["taskset", "-c", "1"] if pinned else []
        report = json.loads(call(*pin, f"{build}/diorite", "job", "--json", "--force", f"{JOBS}/{name}-diorite.fio", "--on", IMAGE))
        return {"bytes_per_s": sum(j[way]["bw_bytes"] for j in report["jobs"] for way in ("read", "write"))}
    return name, lambda: None, run


def worker(*words):
    def run(build):
        return json.loads(call(f"{build}/examples/worker", *words, "--on", IMAGE).strip().splitlines()[-1])
    return " ".join(words), lambda: image("ext4", 1 << 30, "-N", "200000"), run


def cached(build):
    lines = [json.loads(line) for line in call(f"{build}/examples/cached_read", "--json", env=dict(os.environ, TMPDIR=SCRATCH)).splitlines()]
    return {f"{line['kib']}_KiB_ns": statistics.median(line["diorite_ns"]) for line in lines}


def tree(build):
    took = call("bash", "-c", f"TIMEFORMAT='%R %U %S'; {{ time {build}/diorite cp -a {SCRATCH}/tree {IMAGE}:/tree >/dev/null; }} 2>&1").split()
    return {"time_s": float(took[0]), "cpu_s": float(took[1]) + float(took[2])}


def measure(name, before, run):
    ratios, values = {}, {"old": {}, "new": {}}
    for round in range(ROUNDS):
        order = [("old", OLD), ("new", NEW)]
        got = {}
        for which, build in order if round % 2 else reversed(order):
            before()
            got[which] = run(build)
        RAW.write(json.dumps({"row": name, "round": round, **got}) + "\n")
        RAW.flush()
        for figure, old in got["old"].items():
            if isinstance(old, (int, float)) and old and got["new"].get(figure):
                ratios.setdefault(figure, []).append(got["new"][figure] / old)
    for figure, all in ratios.items():
        print(f"| {name} | {figure} | {statistics.median(all):.2f} | {min(all):.2f} to {max(all):.2f} |", flush=True)


print("| row | figure | new / old, median | range |\n|---|---|---|---|")
image("ext2", 2 << 30)
for name, pinned in [("read-1m", 1), ("write-1m", 1), ("randread-4k-qd1", 1), ("randread-4k-qd32", 1), ("randread-4k-8x", 0), ("randwrite-4k-8x", 0)]:
    measure(*job(name, pinned))
measure("cached 4 KiB reads", lambda: None, cached)
for words in (["names", "50000"], ["appends", "1", "2"], ["appends", "8", "2"], ["stream", "512", "direct", "fresh"], ["stream", "512", "buffered", "fresh"]):
    measure(*worker(*words))
if not os.path.exists(f"{SCRATCH}/tree"):
    for file in range(20000):
        os.makedirs(f"{SCRATCH}/tree/{file // 200}", exist_ok=True)
        open(f"{SCRATCH}/tree/{file // 200}/file-{file}", "wb").write(b"%d\n" % file * (file % 4000))
measure("cp -a of 20,000 files", lambda: image("ext4", 1 << 30, "-N", "200000"), tree)
call("rm", "-rf", f"{SCRATCH}/tree", IMAGE)
