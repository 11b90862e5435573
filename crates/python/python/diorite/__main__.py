"""``python -m diorite IMAGE[:/PATH]``: list a directory of an image, or write a file to standard output."""

import argparse
import re
import sys

from . import Filesystem, __version__


def main():
    parser = argparse.ArgumentParser(prog="python -m diorite", description=__doc__.split(": ", 1)[1])
    parser.add_argument("location", metavar="IMAGE[:/PATH]", help="an image or a device, and a path in it")
    parser.add_argument("--version", action="version", version=f"diorite {__version__}")
    # Not the colon of a scheme, as in nbd://HOST/EXPORT:/path.
    image, *rest = re.split(":/(?!/)", parser.parse_args().location, maxsplit=1)
    path = "".join(rest)
    try:
        with Filesystem(image, read_only=True) as fs:
            if fs.isdir("/" + path):
                print(*sorted(fs.listdir("/" + path)), sep="\n")
            else:
                with fs.open("/" + path) as file:
                    while piece := file.read(1 << 20):
                        sys.stdout.buffer.write(piece)
                sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except OSError as error:
        print(f"diorite: {error.filename or image}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
