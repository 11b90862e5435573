"""Copy a tree out of an image: copy_out.py IMAGE PATH DIRECTORY"""

import os
import shutil
import stat
import sys

import diorite


def copy_out(fs, source, target):
    """Copy the tree `source` of the volume to `target` of the host; returns the number of files."""
    found = fs.lstat(source)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(fs.readlink(source), target)
        return 1
    files = 0
    if stat.S_ISDIR(found.st_mode):
        os.mkdir(target)
        for entry in fs.scandir(source):
            files += copy_out(fs, entry.path, os.path.join(target, entry.name))
    elif stat.S_ISREG(found.st_mode):
        with fs.open(source) as content, open(target, "xb") as copy:
            shutil.copyfileobj(content, copy, 1 << 20)
        files = 1
    else:
        return 0
    os.chmod(target, stat.S_IMODE(found.st_mode))
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    return files


def main():
    image, source, target = sys.argv[1:]
    with diorite.Filesystem(image, read_only=True) as fs:
        print(copy_out(fs, source, target), "files")


if __name__ == "__main__":
    main()
