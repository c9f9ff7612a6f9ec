"""Does every part of a schema have a finite value?

`{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}` is a fine schema that nothing satisfies; a model
that is held to it writes `{"a": {"a": {"a": ` until its budget ends. Schemas form an AND-OR graph (all required properties, any
alternative); a part has a finite value if that follows from the leaves upwards, which one pass over the edges finds (as for
productive symbols of a context-free grammar). References that point nowhere are left to the compiler, which refuses them.
"""

from collections import defaultdict
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]


def endless(root: Schema) -> bool:
    """Whether some reachable part of a schema, already known to be well-formed and small, is satisfied by no finite value."""
    needs: dict[int, int] = {}
    users: dict[int, list[tuple[int, int]]] = defaultdict(list)
    queue, ready = [root], []
    while queue:
        schema = queue.pop()
        if id(schema) in needs:
            continue
        groups = _groups(schema, root)
        needs[id(schema)] = len(groups)
        if not groups:
            ready.append(id(schema))
        for number, group in enumerate(groups):
            for child in group:
                users[id(child)].append((id(schema), number))
        queue.extend(child for child in _children(schema, root) if isinstance(child, dict))
    met: set[tuple[int, int]] = set()
    while ready:
        for user in users[ready.pop()]:
            if user not in met:
                met.add(user)
                needs[user[0]] -= 1
                if needs[user[0]] == 0:
                    ready.append(user[0])
    return any(needs.values())


def _groups(schema: Schema, root: Schema) -> list[list[Schema]]:
    """What a value of this schema needs: of each group, one member must have a value."""
    if "enum" in schema or "const" in schema:
        return []
    groups: list[list[Any]] = [[target] for target in _reference(schema, root)]
    groups += [list(schema[key]) for key in ("anyOf", "oneOf") if schema.get(key)]
    groups += [[part] for part in schema.get("allOf", ())]
    if schema.get("type") in ("object", ["object"]):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        groups += [[properties.get(name, others)] for name in schema.get("required", ()) if isinstance(name, str)]
        if schema.get("minProperties", 0) and not schema.get("required"):
            groups.append([*properties.values(), *schema.get("patternProperties", {}).values(), others])
    elif schema.get("type") in ("array", ["array"]):
        first, least = list(schema.get("prefixItems", ())), schema.get("minItems", 0)
        groups += [[item] for item in first[:least]]
        if least > len(first):
            groups.append([schema.get("items", True)])
    # Booleans are no nodes: `true` has values, and a group of nothing but `false` is the compiler's to refuse.
    nodes = ([member for member in group if isinstance(member, dict)] for group in groups if True not in group)
    return [group for group in nodes if group]


def _children(schema: Schema, root: Schema) -> list[Any]:
    children: list[Any] = list(_reference(schema, root))
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        children += schema.get(key, ())
    for key in ("properties", "patternProperties"):
        children += schema.get(key, {}).values()
    return [*children, schema.get("items"), schema.get("additionalProperties")]


def _reference(schema: Schema, root: Schema) -> list[Schema]:
    """The schema that `$ref` points to, as a list of at most one."""
    pointer = schema.get("$ref")
    if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
        return []
    target: Any = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, (list, tuple)) and key.isdecimal() and len(key) < 5 and int(key) < len(target):
            target = target[int(key)]
        else:
            return []
    return [target] if isinstance(target, dict) else []
