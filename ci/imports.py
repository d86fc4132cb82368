#!/usr/bin/env python3
"""Checks that imports in src/ go one way: each room may import only from the rooms below it in ROOMS.

Reads every path `crate::...` and `super::...` outside of comments, tests and the loom models, also those inside functions.
Prints each import that goes upward, each that goes through a re-export of the crate root, each module of tests whose name does
not say so, and the circles of files. Fails if there is one of the first three, or more circles than CIRCLES allows. `--map` prints which room
imports which.
"""
import os
import re
import subprocess
import sys

# From the top to the bottom. Rooms on one line may not import each other.
ROOMS = [
    ["shared"],
    ["http", "io", "snapshot", "watch"],
    ["limiter", "bucket"],
    ["core"],
    ["observe"],
    ["limits"],
    ["limit"],
    ["store"],
    ["algorithm"],
    ["decision", "clock"],
    ["error"],
    ["util"],
]
# Groups of files that import each other, which may not grow: see DESIGN.md, "The map".
CIRCLES = 6

RANK = {room: rank for rank, rooms in enumerate(reversed(ROOMS)) for room in rooms}
USE = re.compile(r"^\s*(?:pub(?:\([a-z]+\))?\s+)?use\s+([^;]+);", re.M)
PATH = re.compile(r"\b(crate|super)((?:::\w+)+)")


def leaves(tree, prefix=()):
    """The paths of a use tree, as tuples of names."""
    tree = tree.strip()
    start = tree.find("{")
    if start < 0:
        path = tree.split(" as ")[0].strip()
        yield prefix + tuple(name.strip() for name in path.split("::") if name.strip())
        return
    head = prefix + tuple(name.strip() for name in tree[:start].split("::") if name.strip())
    depth, item = 0, ""
    for char in tree[start + 1 : tree.rindex("}")] + ",":
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if item.strip():
                yield from leaves(item, head)
            item = ""
        else:
            item += char


def without_tests(text):
    """The source without comments and without items behind `#[cfg(test)]` or a `cfg` that includes it."""
    text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    out, lines, skip = [], text.split("\n"), None
    index = 0
    while index < len(lines):
        line = lines[index]
        if skip is None and re.match(r"\s*#\[cfg\((?:test|all\(test\b)", line):
            indent = len(line) - len(line.lstrip())
            index += 1
            # The item ends with its own closing brace, or with a semicolon.
            while index < len(lines):
                item = lines[index]
                at_end = len(item) - len(item.lstrip()) == indent
                if at_end and re.match(r"\s*(\}|\};)", item) or at_end and item.rstrip().endswith(";"):
                    break
                index += 1
        else:
            out.append(line)
        index += 1
    return "\n".join(out)


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src"], capture_output=True, text=True, check=True).stdout
    files = [f for f in listed.split() if f.endswith(".rs") and os.path.exists(f)]
    modules = {}
    for file in files:
        names = file[len("src/") : -len(".rs")].split("/")
        if names[-1] in ("mod", "lib"):
            names.pop()
        modules[tuple(names)] = file
    unnamed = []
    in_test = [f for f in files if f.startswith("src/models/") or re.search(r"/(models/|\w*tests\.rs$)", f)]
    for parent in files:
        for attr, name in re.findall(r"^#\[cfg\(((?:test|all\(test)[^\n]*)\)\]\n(?:#\[path[^\n]*\n)?(?:pub(?:\([a-z]+\))? )?mod (\w+);", open(parent).read(), re.M):
            if parent != "src/lib.rs" and not re.search(r"(^|_)(tests|models?)$", name):
                unnamed.append(f"{parent}: mod {name}")
            base = parent[: -len("mod.rs")] if parent.endswith("mod.rs") else parent[: -len(".rs")] + "/"
            base = "src/" if parent == "src/lib.rs" else base
            in_test += [f for f in (f"{base}{name}.rs",) if f in files]
            in_test += [f for f in files if f.startswith(f"{base}{name}/")]
    upward, rooted, edges, rooms = [], [], {}, {}
    for module, file in modules.items():
        if not module or file in in_test:
            continue
        text = without_tests(open(file).read())
        paths = set()
        for match in USE.finditer(text):
            paths.update(leaves(match.group(1)))
        for match in PATH.finditer(text):
            paths.add((match.group(1),) + tuple(match.group(2)[2:].split("::")))
        for path in paths:
            if path[0] == "crate":
                target = path[1:]
            elif path[0] in ("super", "self"):
                base = module
                while path and path[0] == "super":
                    base, path = base[:-1], path[1:]
                target = base + (path[1:] if path and path[0] == "self" else path)
            else:
                target = module + path
                if (module + path[:1]) not in modules:
                    continue
            if not target or target[0] not in RANK:
                if path[0] == "crate" and target and re.match(r"[A-Z]", target[0]):
                    rooted.append(f"{file}: crate::{target[0]}")
                continue
            here, there = module[0], target[0]
            rooms.setdefault(here, set()).add(there)
            if here != there and RANK[there] >= RANK[here]:
                upward.append(f"{file}: {'::'.join(target)}")
            for length in range(len(target), 0, -1):
                if target[:length] in modules:
                    # A file may use the items of the `mod.rs` above it: that one is their common part.
                    if target[:length] != module[:length]:
                        edges.setdefault(module, set()).add(target[:length])
                    break
    circles = components(edges)
    if "--map" in sys.argv:
        for room in sorted(rooms, key=lambda room: -RANK.get(room, 99)):
            print(f"{room}: {', '.join(sorted(rooms[room] - {room}))}")
    for line in sorted(unnamed):
        print(f"a module of tests is named `tests`, `..._tests` or `..._model`: {line}")
    for line in sorted(set(upward)):
        print(f"upward import: {line}")
    for line in sorted(set(rooted)):
        print(f"import through the crate root: {line}")
    for circle in circles:
        print(f"circle of {len(circle)} files: {', '.join(sorted('::'.join(module) for module in circle))}")
    print(f"{len(modules)} modules, {len(set(upward))} upward imports, {len(set(rooted))} through the root, {len(circles)} circles")
    sys.exit(1 if unnamed or upward or rooted or len(circles) > CIRCLES else 0)


def components(edges):
    """The groups of files that reach each other."""
    index, low, stack, found, counter = {}, {}, [], [], [0]
    sys.setrecursionlimit(10_000)

    def visit(node):
        index[node] = low[node] = counter[0]
        counter[0] += 1
        stack.append(node)
        for to in edges.get(node, ()):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in stack:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            group = []
            while True:
                other = stack.pop()
                group.append(other)
                if other == node:
                    break
            if len(group) > 1:
                found.append(group)

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


main()
