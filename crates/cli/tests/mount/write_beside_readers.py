import ctypes, mmap, os, signal, struct, subprocess, sys, time

path, way = sys.argv[1], sys.argv[2]
size, libc = 640 << 10, ctypes.CDLL(None, use_errno=True)
SETUP, GETEVENTS, SUBMIT = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}[os.uname().machine]
loop = None
if way == "loop":
    made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", path], capture_output=True, text=True)
    if made.returncode:
        print("SKIPPED: losetup:", made.stderr)
        sys.exit(0)
    loop = made.stdout.strip()
target = os.open(loop or path, os.O_RDWR | os.O_DIRECT)
reader = os.open(path, os.O_RDONLY)
readers = []
for _ in range(3):
    child = os.fork()
    if not child:
        own = os.open(path, os.O_RDONLY)
        while True:
            os.pread(own, size, 0)
    readers.append(child)
memory = mmap.mmap(-1, size)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
context = ctypes.c_ulong(0)
assert libc.syscall(SETUP, 256, ctypes.byref(context)) == 0
step = 4096 if way == "deep" else size


def write():
    if way == "loop":
        return os.pwrite(target, memory, 0)
    blocks = [struct.pack("QIIHhIQQqQII", 0, 0, 0, 1, 0, target, address + at, step, at, 0, 0, 0) for at in range(0, size, step)]
    blocks = [ctypes.create_string_buffer(block) for block in blocks]
    pointers = (ctypes.c_void_p * len(blocks))(*[ctypes.addressof(block) for block in blocks])
    submitted = 0
    while submitted < len(blocks):
        some = libc.syscall(SUBMIT, context, ctypes.c_long(len(blocks) - submitted), ctypes.byref(pointers, submitted * 8))
        assert some > 0, os.strerror(ctypes.get_errno())
        submitted += some
    events = ctypes.create_string_buffer(32 * len(blocks))
    assert libc.syscall(GETEVENTS, context, ctypes.c_long(len(blocks)), ctypes.c_long(len(blocks)), events, None) == len(blocks)
    return sum(struct.unpack_from("q", events.raw, 32 * at + 16)[0] for at in range(len(blocks)))


writes = old = 0
end = time.time() + 6
try:
    while time.time() < end and old < 3:
        content = bytes([0x55 if writes % 2 else 0xAA])
        memory[:] = content * size
        assert write() == size
        writes += 1
        if os.pread(reader, size, 0) != content * size:
            old += 1
finally:
    for child in readers:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(target)
    if loop:
        subprocess.run(["losetup", "--detach", loop])
print(writes, "writes, followed by reads of old content:", old)
