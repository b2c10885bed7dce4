#!/usr/bin/env python3
"""Prints the layout of every struct of provider.h and types.h in FOLDER (which holds gantry/), as the compiler has it:
FIELD(struct, field, offset, bytes) and FIXED(struct, bytes) or GROWS(struct, bytes).

    tests/abi/layout.py tests/abi/1.0 > tests/abi/layout_1_0.def
"""
import os
import re
import subprocess
import sys
import tempfile

# They have a size, but arrays of them cross in both directions: they are as good as those without.
FIXED = {"gantry_tensor", "gantry_error", "gantry_memory_class"}
STRUCT = re.compile(r"struct (gantry_[a-z_]+) \{\n(.*?)\n\}", re.DOTALL)


def fields(body):
    """Names of the members: of functions, arrays, and several after one type."""
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    for member in body.split(";"):
        function = re.match(r"\s*[^()]*\(\*(\w+)\)\(", member)
        if function:
            yield function.group(1)
            continue
        for part in member.split(","):
            name = re.search(r"(\w+)(\[[^\]]*\])?\s*$", part)
            if name:
                yield name.group(1)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder, lines = sys.argv[1], []
    for header in ("types.h", "provider.h"):
        with open(os.path.join(folder, "gantry", header)) as f:
            structs = STRUCT.findall(f.read())
        for name, body in structs:
            members = list(fields(body))
            grows = members[0] == "struct_bytes" and name not in FIXED
            for member in members:
                lines.append('printf("FIELD(%s, %s, %%zu, %%zu)\\n", offsetof(struct %s, %s), sizeof(((struct %s *)0)->%s));' %
                             (name, member, name, member, name, member))
            lines.append('printf("%s(%s, %%zu)\\n", sizeof(struct %s));' % ("GROWS" if grows else "FIXED", name, name))
    # gantry_manifest is told apart by its magic, and has its size after that.
    lines = [line.replace("FIXED(gantry_manifest", "GROWS(gantry_manifest") for line in lines]
    with tempfile.TemporaryDirectory() as scratch:
        source, program = os.path.join(scratch, "layout.c"), os.path.join(scratch, "layout")
        with open(source, "w") as f:
            f.write("#include <gantry/provider.h>\nint main(void)\n{\n%s\nreturn 0;\n}\n" % "\n".join(lines))
        subprocess.run([os.environ.get("CC", "cc"), "-I", folder, source, "-o", program], check=True)
        print("/* Made by tests/abi/layout.py: see README.md there. */")
        sys.stdout.write(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
