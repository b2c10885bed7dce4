#!/usr/bin/env python3
"""Every release's header that tests/abi keeps has the layout that is written down for it, today's has all of that, and
what was appended since lies behind the older struct's end, not in its padding.   tests/check_abi.py
"""
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ABI = os.path.join(TOP, "tests/abi")
FIELD = re.compile(r"FIELD\((\w+), (\w+), (\d+), \d+\)")
SIZE = re.compile(r"(?:GROWS|FIXED)\((\w+), (\d+)\)")


def layout(folder):
    return subprocess.run([os.path.join(ABI, "layout.py"), folder], check=True, capture_output=True, text=True).stdout


def read(name):
    with open(os.path.join(ABI, name)) as f:
        return f.read()


def complain(written, today, name):
    bad = ["%s: %s is no more" % (name, line) for line in written.splitlines()
           if line.startswith(("FIELD", "FIXED")) and line not in today.splitlines()]
    sizes = dict(SIZE.findall(written))
    known = {match[:2] for match in FIELD.findall(written)}
    for struct, field, offset in FIELD.findall(today):
        if struct in sizes and (struct, field) not in known and int(offset) < int(sizes[struct]):
            bad.append("%s: %s.%s lies at %s, inside the older struct of %s bytes" % (name, struct, field, offset, sizes[struct]))
    return bad


def main():
    today, bad = layout(os.path.join(TOP, "include")), []
    for name in sorted(n for n in os.listdir(ABI) if n.endswith(".def")):
        bad += complain(read(name), today, name)
    for release in sorted(n for n in os.listdir(ABI) if re.match(r"\d+\.\d+$", n)):
        name = "layout_%s.def" % release.replace(".", "_")
        if layout(os.path.join(ABI, release)) != read(name):
            bad.append("%s is not what tests/abi/%s gives" % (name, release))
    print("\n".join("check_abi: " + line for line in bad), end="\n" if bad else "")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
