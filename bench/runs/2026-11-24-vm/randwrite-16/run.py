"""Random writes of 4 KiB at depth 16 to one file of the host, by fio and by `diorite job`, in turn: `python3 run.py DIORITE ROUNDS`."""
import json, statistics, subprocess, sys

def iops(command):
    jobs = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["jobs"]
    return jobs[0]["write"]["iops"]

diorite, rounds = sys.argv[1], int(sys.argv[2])
pairs = []
for _ in range(rounds):
    fio = iops(["fio", "--output-format=json", "randwrite-16.fio"])
    pairs.append((fio, iops([diorite, "job", "randwrite-16.fio", "--json"])))
    print(f"fio {pairs[-1][0]:.0f}, diorite {pairs[-1][1]:.0f} a second: {pairs[-1][1] / pairs[-1][0]:.3f}", flush=True)
ratios = [ours / theirs for theirs, ours in pairs]
print(f"median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
