#!/usr/bin/env python3
"""Prints the library's public items, one a line, sorted by path, from rustdoc's JSON: ci/api.py FILE

Walks the public paths from the crate root: modules, types with their public fields and variants, inherent methods and
functions with their signatures, traits with their items and impls, constants and macros. An item with several paths is printed at
the longest; each other path is a `use`. Of trait impls it prints those that are written out or derived; not those that a type has
automatically or by a blanket impl, and no `doc(hidden)` items. `// NAME` at the end of a line: needs that feature.
"""
import json
import pathlib
import re
import sys
import tomllib

with open(sys.argv[1], encoding="utf-8") as file:
    CRATE = json.load(file)
INDEX = CRATE["index"]
with open("Cargo.toml", "rb") as file:
    FEATURES = tomllib.load(file)["features"]
# rustdoc's name of a feature in an attribute, and the attribute on a module that rustdoc does not list because it is private.
TRACE = re.compile(r'name: "feature", value: Some\("([^"]+)"\)')
GATED = re.compile(r'#\[cfg\(feature = "([^"]+)"\)\]\n(?:pub(?:\([a-z]+\))? )?mod (\w+);')
modules = {}
for source in sorted(pathlib.Path("src").rglob("*.rs")):
    folder = source.parent if source.name in ("lib.rs", "mod.rs") else source.with_suffix("")
    for feature, name in GATED.findall(source.read_text(encoding="utf-8")):
        modules[folder / name] = feature
paths = {}
lines = set()


def own_features(item):
    """The features that an item's attributes and the modules around it ask for."""
    found = set()
    for attr in item["attrs"]:
        trace = attr.get("other", "") if isinstance(attr, dict) else ""
        if "CfgTrace(" in trace:
            names = TRACE.findall(trace)
            found.update(["any(" + ", ".join(names) + ")"] if "Any(" in trace and len(names) > 1 else names)
    file = item["span"] and pathlib.Path(item["span"]["filename"])
    for part in [file.with_suffix(""), *file.parents] if file else []:
        found.update([modules[part]] if part in modules else [])
    return found


def implied(feature):
    """The features that a feature of Cargo.toml brings, and theirs."""
    below = [one for one in FEATURES.get(feature, []) if one in FEATURES]
    return set(below).union(*map(implied, below))


def add(line, features):
    """Adds a line for an item that needs the features."""
    needed = sorted(features - set().union(*map(implied, features)))
    lines.add(line + (" // " + ", ".join(needed) if needed else ""))


def args(generic):
    """The text of generic arguments: `<K, V>`, `(A) -> B` or nothing."""
    if not generic:
        return ""
    if "parenthesized" in generic:
        of = generic["parenthesized"]
        back = f" -> {text(of['output'])}" if of["output"] else ""
        return f"({', '.join(map(text, of['inputs']))}){back}"
    of = generic["angle_bracketed"]
    parts = []
    for arg in of["args"]:
        if arg == "infer":
            parts.append("_")
        elif "type" in arg:
            parts.append(text(arg["type"]))
        else:
            parts.append(arg["lifetime"] if "lifetime" in arg else arg["const"]["expr"])
    for one in of["constraints"]:
        binding = one["binding"]
        if "equality" in binding:
            term = binding["equality"]
            parts.append(f"{one['name']} = {text(term['type']) if 'type' in term else term['constant']['expr']}")
        else:
            parts.append(f"{one['name']}: {bounds(binding['constraint'])}")
    return f"<{', '.join(parts)}>" if parts else ""


def path(of):
    """The text of a path with its last name only: which crate a type comes from is in its documentation."""
    return of["path"].rsplit("::", 1)[-1] + args(of.get("args"))


def binder(params):
    """`for<'a> ` or nothing."""
    names = [one["name"] for one in params or []]
    return f"for<{', '.join(names)}> " if names else ""


def bounds(all_of):
    """The text of bounds."""
    parts = []
    for bound in all_of:
        if "trait_bound" in bound:
            of = bound["trait_bound"]
            mark = "?" if of["modifier"] == "maybe" else ""
            parts.append(mark + binder(of["generic_params"]) + path(of["trait"]))
        else:
            parts.append(bound.get("outlives") or "use<..>")
    return " + ".join(parts)


def text(ty):
    """The text of a type."""
    kind, of = next(iter(ty.items()))
    if kind == "resolved_path":
        return path(of)
    if kind in ("generic", "primitive"):
        return of
    if kind == "borrowed_ref":
        life = of["lifetime"] + " " if of["lifetime"] else ""
        return f"&{life}{'mut ' if of['is_mutable'] else ''}{text(of['type'])}"
    if kind == "raw_pointer":
        return f"*{'mut' if of['is_mutable'] else 'const'} {text(of['type'])}"
    if kind == "tuple":
        return f"({', '.join(map(text, of))}{',' if len(of) == 1 else ''})"
    if kind == "slice":
        return f"[{text(of)}]"
    if kind == "array":
        return f"[{text(of['type'])}; {of['len']}]"
    if kind == "impl_trait":
        return f"impl {bounds(of)}"
    if kind == "dyn_trait":
        parts = [binder(one["generic_params"]) + path(one["trait"]) for one in of["traits"]]
        return "dyn " + " + ".join(parts + ([of["lifetime"]] if of["lifetime"] else []))
    if kind == "qualified_path":
        this = text(of["self_type"])
        if of["trait"] and this != "Self":
            this = f"<{this} as {path(of['trait'])}>"
        return f"{this}::{of['name']}"
    if kind == "function_pointer":
        return f"{binder(of['generic_params'])}fn{signature(of['sig'], named=False)}"
    raise ValueError(f"rustdoc's JSON has a kind of type that ci/api.py does not know: {kind}")


def signature(sig, named=True):
    """Arguments and result of a function."""
    parts = [f"{name}: {text(ty)}" if named else text(ty) for name, ty in sig["inputs"]]
    short = {"self: Self": "self", "self: &Self": "&self", "self: &mut Self": "&mut self"}
    parts = [short.get(part, part) for part in parts]
    back = f" -> {text(sig['output'])}" if sig["output"] else ""
    return f"({', '.join(parts)}){back}"


def generics(of):
    """Parameters and where clause of an item."""
    parts, wheres = [], []
    for param in of["params"]:
        kind, value = next(iter(param["kind"].items()))
        if kind == "type" and not value["is_synthetic"]:
            given = f": {bounds(value['bounds'])}" if value["bounds"] else ""
            default = f" = {text(value['default'])}" if value["default"] else ""
            parts.append(param["name"] + given + default)
        elif kind == "lifetime":
            parts.append(param["name"] + (f": {' + '.join(value['outlives'])}" if value["outlives"] else ""))
        elif kind == "const":
            parts.append(f"const {param['name']}: {text(value['type'])}")
    for one in of["where_predicates"]:
        if "bound_predicate" in one:
            of_type = one["bound_predicate"]
            wheres.append(f"{binder(of_type['generic_params'])}{text(of_type['type'])}: {bounds(of_type['bounds'])}")
        elif "lifetime_predicate" in one:
            of_life = one["lifetime_predicate"]
            wheres.append(f"{of_life['lifetime']}: {' + '.join(of_life['outlives'])}")
    return f"<{', '.join(parts)}>" if parts else "", f" where {', '.join(wheres)}" if wheres else ""


def header(of):
    """The words before `fn`."""
    return "".join(word + " " for word in ("const", "async", "unsafe") if of["is_" + word]) + "fn"


def function(where, item, features, mark=""):
    """A line for a function or a method."""
    of = item["inner"]["function"]
    params, wheres = generics(of["generics"])
    add(f"{header(of['header'])} {where}{params}{signature(of['sig'])}{wheres}{mark}", features)


def members(where, ids, features, of_trait=False):
    """Lines for the items of an inherent impl or a trait."""
    for one in ids:
        item = INDEX[str(one)]
        kind, of = next(iter(item["inner"].items()))
        if not of_trait and item["visibility"] != "public":
            continue
        name = f"{where}::{item['name']}"
        needed = features | own_features(item)
        if kind == "function":
            function(name, item, needed, " { .. }" if of_trait and of["has_body"] else "")
        elif kind == "assoc_const":
            add(f"const {name}: {text(of['type'])}", needed)
        elif kind == "assoc_type":
            add(f"type {name}{': ' + bounds(of['bounds']) if of['bounds'] else ''}", needed)
        else:
            raise ValueError(f"rustdoc's JSON has a kind of member that ci/api.py does not know: {kind}")


def fields(where, ids, features):
    """Lines for public fields; of variants, all."""
    for one in ids:
        item = INDEX.get(str(one)) if one is not None else None
        if item:
            needed = features | own_features(item)
            add(f"field {where}.{item['name']}: {text(item['inner']['struct_field'])}", needed)


def impls(where, ids, features, foreign=False):
    """Lines for methods, and for the traits that are written out or derived; of a trait, for its impls for foreign types."""
    for one in ids:
        item = INDEX.get(str(one))
        if not item:
            continue
        of = item["inner"]["impl"]
        needed = features | own_features(item)
        if of["trait"] is None:
            members(where, of["items"], needed)
        elif not of["is_synthetic"] and of["blanket_impl"] is None:
            params, wheres = generics(of["generics"])
            name = path(of["trait"])
            of_type = text(of["for"])
            if foreign:
                local = of["for"].get("resolved_path", {}).get("id")
                if str(local) not in INDEX:
                    add(f"impl{params} {where} for {of_type}{wheres}", needed)
            # The compiler's mark of derived equality, and the impl that pin-project-lite writes.
            elif name != "StructuralPartialEq" and "'__pin" not in params:
                around = where.rsplit("::", 1)[0]
                of_type = f"{around}::{of_type}" if "resolved_path" in of["for"] else f"{of_type} at {where}"
                add(f"impl{params} {name} for {of_type}{wheres}", needed)


def variant(where, item, features):
    """Lines for a variant with its fields."""
    name = f"{where}::{item['name']}"
    marks = "#[non_exhaustive] " if "non_exhaustive" in item["attrs"] else ""
    needed = features | own_features(item)
    add(f"{marks}variant {name}", needed)
    shape = item["inner"]["variant"]["kind"]
    if isinstance(shape, dict):
        fields(name, shape["struct"]["fields"] if "struct" in shape else shape["tuple"], needed)


def collect(where, item, features):
    """Notes the public paths of an item, with the features that each needs, and of what is in it."""
    kind, of = next(iter(item["inner"].items()))
    needed = features | own_features(item)
    if kind == "use":
        target = INDEX.get(str(of["id"]))
        if target is None:
            add(f"use {where}::{of['name']} = {of['source']}", needed)
        elif of["is_glob"]:
            inside(where, target, needed)
        else:
            collect(f"{where}::{of['name']}", target, needed)
        return
    paths.setdefault(item["id"], {})[where] = needed
    if kind == "module":
        inside(where, item, needed)


def inside(where, module, features):
    """Notes the paths of the public items of a module."""
    for one in module["inner"]["module"]["items"]:
        item = INDEX.get(str(one))
        if item and item["visibility"] == "public":
            collect(where if "use" in item["inner"] else f"{where}::{item['name']}", item, features)


def show(where, item, features):
    """Lines for an item at its path."""
    kind, of = next(iter(item["inner"].items()))
    marks = "#[non_exhaustive] " if "non_exhaustive" in item["attrs"] else ""
    if kind == "function":
        function(where, item, features)
    elif kind in ("struct", "enum", "trait", "type_alias"):
        params, wheres = generics(of["generics"])
        if kind == "struct":
            shape = of["kind"]
            add(f"{marks}struct {where}{params}{wheres}", features)
            if shape != "unit":
                fields(where, shape["plain"]["fields"] if "plain" in shape else shape["tuple"], features)
            impls(where, of["impls"], features)
        elif kind == "enum":
            add(f"{marks}enum {where}{params}{wheres}", features)
            for one in of["variants"]:
                variant(where, INDEX[str(one)], features)
            impls(where, of["impls"], features)
        elif kind == "trait":
            above = f": {bounds(of['bounds'])}" if of["bounds"] else ""
            add(f"{marks}trait {where}{params}{above}{wheres}", features)
            members(where, of["items"], features, of_trait=True)
            impls(where, of["implementations"], features, foreign=True)
        else:
            add(f"type {where}{params} = {text(of['type'])}{wheres}", features)
    elif kind in ("constant", "static"):
        add(f"{kind} {where}: {text(of['type'])}", features)
    else:
        # A module or a macro.
        add(f"{kind.replace('module', 'mod')} {where}", features)


inside("tollgate", INDEX[str(CRATE["root"])], set())
for key, found in paths.items():
    full = max(found, key=lambda one: (one.count("::"), one))
    show(full, INDEX[str(key)], found[full])
    for short in found:
        if short != full:
            add(f"use {short} = {full}", found[short])
print("\n".join(sorted(lines, key=lambda line: (line.split("tollgate::", 1)[-1], line))))
