# Interleaved: diorite check and e2fsck -fn, cold and warm. Prints CSV.
import os, resource, subprocess, sys, time
image, rounds = sys.argv[1], int(sys.argv[2]); rivals = dict(a.split("=", 1) for a in sys.argv[3:])
print("state,program,round,wall_s,user_s,sys_s")
def run(command):
    start = time.perf_counter()
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    _, status, use = os.wait4(p.pid, 0)
    return time.perf_counter() - start, use.ru_utime, use.ru_stime, status
for state in ("cold", "warm"):
    for r in range(rounds):
        for name, command in rivals.items():
            words = [w.replace("IMAGE", image) for w in command.split()]
            if state == "cold":
                os.sync(); open("/proc/sys/vm/drop_caches", "w").write("3\n"); time.sleep(1)
            else:
                run(words)
            wall, user, system, status = run(words)
            assert status == 0, (name, status)
            print(f"{state},{name},{r},{wall:.4f},{user:.4f},{system:.4f}", flush=True)
