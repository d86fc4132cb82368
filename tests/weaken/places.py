"""Makes a copy of the crate's source in which each ordering can be weakened when it runs.

    places.py TREE PLACES

In TREE, every `Ordering::X` stronger than Relaxed becomes `crate::weaken::at(N, Ordering::X)`, and every
such fence `crate::weaken::fence(N, ...)`; TREE gets a module that answers by the variable WEAKEN, as in
`WEAKEN=7:Relaxed`, or `WEAKEN=7:Relaxed,9:Release` for both at once. So the models are built once, and not
once a mutant. To PLACES goes a line for each mutant: number, file, line, function, which of its orderings,
what it becomes.

Left out: the models themselves, what is of loom's builds or tests alone, and the body of
`if fault::active(Fault::X) { ... }`, which only twins run.
"""

import pathlib
import re
import sys

WEAKER = {
    "Acquire": ["Relaxed"],
    "Release": ["Relaxed"],
    "AcqRel": ["Relaxed", "Acquire", "Release"],
    "SeqCst": ["Relaxed", "Acquire", "Release", "AcqRel"],
}
# No fence is weaker than these, but none at all, which is what Relaxed stands for.
WEAKER_FENCE = {**WEAKER, "SeqCst": ["Relaxed", "AcqRel"]}

MODULE = r"""//! Answers which ordering is weakened.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::util::sync::Ordering;

const NEVER: AtomicBool = AtomicBool::new(false);
static REACHED: [AtomicBool; 200] = [NEVER; 200];
static MUTANT: OnceLock<Vec<(usize, Ordering)>> = OnceLock::new();

fn mutant() -> &'static [(usize, Ordering)] {
    MUTANT.get_or_init(|| {
        let text = std::env::var("WEAKEN").unwrap_or_default();
        text.split_terminator(',').map(weakening).collect()
    })
}

fn weakening(text: &str) -> (usize, Ordering) {
    let (place, order) = text.split_once(':').expect("WEAKEN=PLACE:ORDERING");
    let order = match order {
        "Relaxed" => Ordering::Relaxed,
        "Acquire" => Ordering::Acquire,
        "Release" => Ordering::Release,
        "AcqRel" => Ordering::AcqRel,
        _ => panic!("no ordering: {order}"),
    };
    (place.parse().expect("a number"), order)
}

pub(crate) fn is_on() -> bool {
    !mutant().is_empty()
}

pub(crate) fn at(place: usize, order: Ordering) -> Ordering {
    if !REACHED[place].swap(true, Relaxed) {
        eprintln!("\nplace {place} reached");
    }
    mutant().iter().find(|(here, _)| *here == place).map_or(order, |(_, weaker)| *weaker)
}

#[allow(dead_code)]
pub(crate) fn fence(place: usize, order: Ordering) {
    let order = at(place, order);
    if order != Ordering::Relaxed {
        crate::util::sync::fence(order);
    }
}
"""


def blanked(text):
    """The text with comments and strings blanked, so that braces and names in them are not met."""
    pattern = r'//[^\n]*|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, lambda found: " " * len(found.group()), text)


def block_end(text, start):
    """Where the item or block that begins after `start` ends: at its brace, or a semicolon before it."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] in "{([":
            depth += 1
        elif text[at] in "})]":
            depth -= 1
            if depth == 0 and text[at] == "}":
                return at + 1
        elif text[at] == ";" and depth == 0:
            return at + 1
    return len(text)


def left_out(code):
    starts = r"if fault::active\(Fault::\w+\) (?=\{)|#\[cfg\(tollgate_loom\)\]|#\[cfg\(test\)\]|#\[cfg\(all\(test[^\n]*\)\]"
    return [(found.start(), block_end(code, found.end())) for found in re.finditer(starts, code)]


def weaken(path, name, number, mutants):
    text = path.read_text()
    code = blanked(text)
    spans = left_out(code)
    parts, last, seen = [], 0, {}
    for found in re.finditer(r"(\bfence\()?\bOrdering::(Acquire|Release|AcqRel|SeqCst)\b", code):
        if any(start <= found.start() < end for start, end in spans):
            continue
        function = re.findall(r"\bfn (\w+)", code[: found.start()])
        fence, order = found.groups()
        parts.append(text[last : found.start()])
        if fence:
            parts.append(f"crate::weaken::fence({number}, Ordering::{order}")
        else:
            parts.append(f"crate::weaken::at({number}, Ordering::{order})")
        last = found.end()
        line = code.count("\n", 0, found.start()) + 1
        function = function[-1] if function else "-"
        seen[function, order] = seen.get((function, order), 0) + 1
        which = f"{order}#{seen[function, order]}"
        for weaker in (WEAKER_FENCE if fence else WEAKER)[order]:
            mutants.append((number, name, line, function, which, weaker))
        number += 1
    if parts:
        path.write_text("".join(parts) + text[last:])
    return number


def main():
    tree, places = map(pathlib.Path, sys.argv[1:])
    number, mutants = 0, []
    for path in sorted((tree / "src").rglob("*.rs")):
        name = path.relative_to(tree).as_posix()
        if re.search(r"/models/|/reclaim\.rs$|/sync\.rs$|_tests?\.rs$", name):
            continue
        number = weaken(path, name, number, mutants)
    (tree / "src/weaken.rs").write_text(MODULE)
    lib = tree / "src/lib.rs"
    lib.write_text(lib.read_text() + "\nmod weaken;\n")
    # A mutant is asked of what must pass; the twins, which must fail, say nothing of it.
    models = tree / "src/models/mod.rs"
    text = models.read_text()
    twin = "    fault::plant(Some(fault));\n"
    if text.count(twin) != 1:
        sys.exit("places.py: where a twin begins has changed in src/models/mod.rs")
    models.write_text(text.replace(twin, "    if crate::weaken::is_on() {\n        return;\n    }\n" + twin))
    lines = ["\t".join(map(str, mutant)) for mutant in mutants]
    places.write_text("\n".join(lines) + "\n")


main()
