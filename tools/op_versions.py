"""Prints graph/op_versions.def: since-versions and arity of every operator, from onnx's own schemas.

    python tools/op_versions.py > graph/op_versions.def        (needs the onnx package)

The arity is that of all versions from the one in force at opset 7 on (or the first, when that came later).
"""
import collections

import onnx.defs

NEWEST = 28


def bounds(schemas, low, high):
    most = max(getattr(s, high) for s in schemas)
    return min(getattr(s, low) for s in schemas), -1 if most > 1000 else most


def main():
    operators = collections.defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= NEWEST:
            operators[schema.name][schema.since_version] = schema
    print(f"/* Made by tools/op_versions.py from the schemas of onnx {onnx.__version__}: don't edit. */")
    for name in sorted(operators):
        versions = sorted(operators[name])
        first = max([v for v in versions if v <= 7], default=versions[0])
        used = [operators[name][v] for v in versions if v >= first]
        least_in, most_in = bounds(used, "min_input", "max_input")
        least_out, most_out = bounds(used, "min_output", "max_output")
        print(f"#define GT_SINCE_{name} {{{', '.join(map(str, versions))}}}")
        print(f"#define GT_ARITY_{name} {least_in}, {most_in}, {least_out}, {most_out}")


if __name__ == "__main__":
    main()
