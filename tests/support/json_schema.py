"""A validator for the part of JSON Schema that docs/report.schema.json uses; problems(value, schema) lists what is wrong.

Keywords it does not know are an error: a schema that grows must not be checked less.
"""

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
NOTED = {"$schema", "$defs", "title", "description"}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def follow(ref, root):
    for part in ref.split("/")[1:]:
        root = root[part]
    return root


def check_object(value, schema, root, where):
    found = ["%s has no %s" % (where, name) for name in schema.get("required", []) if name not in value]
    for name, member in value.items():
        inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
        found += problems(member, inner, root, "%s.%s" % (where, name))
    return found


def check_array(value, schema, root, where):
    found = []
    if len(value) > schema.get("maxItems", len(value)):
        found.append("%s has %d items, at most %d" % (where, len(value), schema["maxItems"]))
    for k, item in enumerate(value):
        found += problems(item, schema.get("items", {}), root, "%s[%d]" % (where, k))
    return found


def check_any(value, schema, root, where):
    if any(not problems(value, one, root, where) for one in schema["anyOf"]):
        return []
    return ["%s is %r, none of what it may be" % (where, value)]


KEYWORDS = {
    "type": lambda v, s, r, w: [] if any(is_type(v, t) for t in (s["type"] if isinstance(s["type"], list) else [s["type"]]))
    else ["%s is %r, no %s" % (w, v, s["type"])],
    "const": lambda v, s, r, w: [] if v == s["const"] else ["%s is %r, not %r" % (w, v, s["const"])],
    "enum": lambda v, s, r, w: [] if v in s["enum"] else ["%s is %r, none of %s" % (w, v, s["enum"])],
    "$ref": lambda v, s, r, w: problems(v, follow(s["$ref"], r), r, w),
    "anyOf": check_any,
    "properties": lambda v, s, r, w: check_object(v, s, r, w) if isinstance(v, dict) else [],
    "items": lambda v, s, r, w: check_array(v, s, r, w) if isinstance(v, list) else [],
}
WITH_OTHERS = {"required", "additionalProperties", "maxItems"}


def problems(value, schema, root=None, where="report"):
    root = root if root is not None else schema
    unknown = set(schema) - set(KEYWORDS) - WITH_OTHERS - NOTED
    if unknown:
        return ["%s: the validator does not know %s" % (where, sorted(unknown))]
    found = []
    for keyword in schema:
        if keyword in KEYWORDS:
            found += KEYWORDS[keyword](value, schema, root, where)
    if "properties" not in schema and isinstance(value, dict) and {"required", "additionalProperties"} & set(schema):
        found += check_object(value, schema, root, where)
    if "items" not in schema and "maxItems" in schema and isinstance(value, list):
        found += check_array(value, schema, root, where)
    return found
