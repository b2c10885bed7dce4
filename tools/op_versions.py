"""Prints graph/op_versions.def: since-versions, arity, attributes, input types and names of every operator, from onnx's schemas.

    python tools/op_versions.py > graph/op_versions.def        (needs the onnx package)

Arity, attributes and types are those of all versions from the one in force at opset 7 on (or the first, when that came
later). Types are bit masks over TensorProto.DataType; of a variadic input the mask stands once, at the end. Names are the newest
version's, with the version from which on the inputs that it has are called so.
"""
import collections

import onnx
import onnx.defs

NEWEST = 28
TYPES = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9,
    "float16": 10, "double": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16,
    "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22,
    "float4e2m1": 23, "float8e8m0": 24, "uint2": 25, "int2": 26,
}
KINDS = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "FLOATS": "F", "INTS": "I", "STRINGS": "S"}


def bounds(schemas, low, high):
    most = max(getattr(s, high) for s in schemas)
    return min(getattr(s, low) for s in schemas), -1 if most > 1000 else most


def mask(types):
    bits = 0
    for name in types:
        if name.startswith("tensor(") and name[7:-1] in TYPES:
            bits |= 1 << TYPES[name[7:-1]]
    return bits


def attributes(schemas):
    kinds = {}
    for schema in schemas:
        for name, attribute in schema.attributes.items():
            kind = KINDS.get(attribute.type.name)
            if kind and kind not in kinds.setdefault(name, ""):
                kinds[name] += kind
    return " ".join(f"{name}:{kind}" for name, kind in sorted(kinds.items()))


def input_types(schemas):
    masks = []
    for schema in schemas:
        for k, formal in enumerate(schema.inputs):
            masks += [0] * (k + 1 - len(masks))
            masks[k] |= mask(formal.types)
    return masks


def input_names(schemas):
    newest = [formal.name for formal in schemas[-1].inputs]
    since = schemas[-1].since_version
    for schema in reversed(schemas):
        names = [formal.name for formal in schema.inputs]
        if names != newest[:len(names)]:
            break
        since = schema.since_version
    return since, " ".join(newest)


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
        masks = input_types(used)
        print(f"#define GT_SINCE_{name} {{{', '.join(map(str, versions))}}}")
        print(f"#define GT_ARITY_{name} {least_in}, {most_in}, {least_out}, {most_out}")
        print(f"#define GT_SCHEMA_{name} \"{attributes([operators[name][v] for v in versions])}\", {len(masks)}, "
              f"{{{', '.join(hex(m) for m in masks) or '0'}}}")
        print("#define GT_INPUTS_%s %d, \"%s\"" % ((name,) + input_names([operators[name][v] for v in versions])))


if __name__ == "__main__":
    main()
