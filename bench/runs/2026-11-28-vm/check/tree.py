# 108,000 small files in 4,321 directories: names of 6 to 40 characters, sizes of 0 to 12 KiB, a few of 60 KiB to 300 KiB, symbolic links
import os, random, sys
random.seed(38); root = sys.argv[1]; os.makedirs(root)
dirs = [root]
for n in range(4320):
    d = os.path.join(random.choice(dirs[-200:] if n % 3 else dirs), f"directory-{n:05d}"[: random.randint(12, 15)] + str(n))
    os.mkdir(d); dirs.append(d)
data = os.urandom(1 << 20)
for n in range(108000):
    d = random.choice(dirs) if n % 20 else dirs[7]
    name = f"{n:06d}" + "n" * random.randint(0, 34)
    path = os.path.join(d, name)
    if n % 100 == 3: os.symlink("target/" * random.choice((2, 12)), path); continue
    size = random.randint(60000, 300000) if n % 50 == 0 else random.randint(0, 12288)
    at = random.randint(0, len(data) - 300001)
    with open(path, "wb") as f: f.write(data[at : at + size])
