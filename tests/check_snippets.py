#!/usr/bin/env python3
"""The C blocks of the documents are programs: those of docs/embedding.md, in their order, are one that runs a model; the
README's stands in a function; those of docs/plugin-guide.md are pieces of examples/plugin/example.c, or compile.

    tests/check_snippets.py [BUILD]
"""
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = re.compile(r"^ *```c\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-I" + os.path.join(TOP, "include")]


def blocks(document):
    """The blocks, each with a line that makes errors name the document."""
    with open(os.path.join(TOP, document)) as f:
        text = f.read()
    return ['#line %d "%s"\n%s' % (text.count("\n", 0, m.start(1)) + 1, document, m.group(1)) for m in BLOCK.finditer(text)]


def compiler():
    return os.environ.get("CC", "cc")


def embedding(build, folder):
    source, program = os.path.join(folder, "embedding.c"), os.path.join(folder, "embedding")
    with open(source, "w") as f:
        f.write("\n".join(blocks("docs/embedding.md")))
    done = subprocess.run([compiler(), *FLAGS, source, "-L" + build, "-lgantry", "-lpthread", "-Wl,-rpath," + build, "-o", program])
    if done.returncode:
        return "the blocks of docs/embedding.md are no program"
    ran = subprocess.run([program, os.path.join(TOP, "tests/data/consumer/add.onnx")], stdout=subprocess.PIPE, text=True, timeout=60)
    if ran.returncode or "cpu: available" not in ran.stdout:
        return "the program of docs/embedding.md ends with %d and says:\n%s" % (ran.returncode, ran.stdout)
    return None


def readme(folder):
    """Includes first; the rest in a function that has the pixels it talks of."""
    for k, block in enumerate(blocks("README.md")):
        includes = "".join(line + "\n" for line in block.splitlines() if line.startswith("#include"))
        rest = "\n".join("" if line.startswith("#include") else line for line in block.splitlines())
        source = os.path.join(folder, "readme%d.c" % k)
        with open(source, "w") as f:
            f.write("#include <stdio.h>\n%sfloat pixels[3 * 224 * 224];\nint readme(void);\nint readme(void)\n{\n%s\nreturn 0;\n}\n" % (includes, rest))
        if subprocess.run([compiler(), *FLAGS, "-fsyntax-only", source]).returncode:
            return "a block of README.md does not compile"
    return None


def plugin_guide(folder):
    """Blocks that are no pieces of the example are one file, in their order."""
    with open(os.path.join(TOP, "examples/plugin/example.c")) as f:
        example = f.read()
    others = [b for b in blocks("docs/plugin-guide.md") if b.split("\n", 1)[1] not in example]
    source = os.path.join(folder, "guide.c")
    with open(source, "w") as f:
        f.write("#include <gantry/provider.h>\n" + "\n".join(others))
    if subprocess.run([compiler(), *FLAGS, "-Wno-unused-function", "-fsyntax-only", source]).returncode:
        return "a block of docs/plugin-guide.md is no piece of the example, and does not compile"
    return None


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "build/release"))
    with tempfile.TemporaryDirectory(prefix="gantry-snippets-") as folder:
        problems = [p for p in (embedding(build, folder), readme(folder), plugin_guide(folder)) if p]
    for p in problems:
        print("check_snippets: " + p)
    return len(problems) > 0


if __name__ == "__main__":
    sys.exit(main())
