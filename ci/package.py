#!/usr/bin/env python3
"""Checks an unpacked package's page on crates.io: its manifest, its licences and its README: ci/package.py FOLDER..."""
import pathlib
import re
import sys
import tomllib

# Of crates.io's categories, those that fit; crates.io drops others without an error.
CATEGORIES = {
    "algorithms",
    "command-line-utilities",
    "concurrency",
    "network-programming",
    "web-programming::http-server",
}
LICENCES = {"MIT OR Apache-2.0": ["LICENSE-MIT", "LICENSE-APACHE"]}
DOCUMENTATION = "https://docs.rs/tollgate"
faults = []


def want(is_so, text):
    """Notes a fault of the package in hand."""
    if not is_so:
        faults.append(f"{folder.name}: {text}")


for folder in map(pathlib.Path, sys.argv[1:]):
    manifest = tomllib.loads((folder / "Cargo.toml").read_text(encoding="utf-8"))
    package = manifest["package"]
    want(package.get("description"), "has no description")
    want("rust-version" in package, "has no rust-version")
    want("repository" not in package, "names a repository: none is public")
    page = package.get("documentation", "")
    want(page.startswith(DOCUMENTATION), f"documentation is {page!r}, not below {DOCUMENTATION}")
    inside = re.fullmatch(r"/latest/tollgate/docs/(\w+)/index\.html", page.removeprefix(DOCUMENTATION))
    is_there = inside and pathlib.Path("docs", inside[1].replace("_", "-") + ".md").is_file()
    want(page == DOCUMENTATION or is_there, f"documentation is {page!r}, and no page of docs/")
    keywords = package.get("keywords", [])
    is_word = all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_+-]{0,19}", one) for one in keywords)
    want(1 <= len(keywords) <= 5 and is_word, f"keywords {keywords}: crates.io takes 1 to 5, of 20 letters each")
    categories = package.get("categories", [])
    want(1 <= len(categories) <= 5 and set(categories) <= CATEGORIES, f"categories {categories}: 1 to 5 of {sorted(CATEGORIES)}")
    licence = package.get("license")
    want(licence in LICENCES, f"licence {licence!r} is none of {list(LICENCES)}")
    for name in LICENCES.get(licence, []):
        text = folder / name
        is_same = text.is_file() and text.read_bytes() == pathlib.Path(name).read_bytes()
        want(is_same, f"{name} is missing or not the project's")
    readme = package.get("readme")
    want(readme and (folder / readme).is_file(), f"readme {readme!r} is not in the package")
    if "lib" in manifest:
        on_docs = package.get("metadata", {}).get("docs", {}).get("rs", {})
        want(on_docs.get("all-features") is True, "docs.rs: all-features is not true")
        want(on_docs.get("rustdoc-args") == ["--cfg", "docsrs"], "docs.rs: rustdoc-args has no --cfg docsrs")
        root = (folder / manifest["lib"]["path"]).read_text(encoding="utf-8")
        want("#![cfg_attr(docsrs, feature(doc_cfg))]" in root, "docs.rs: src/lib.rs does not mark features")
print("\n".join(faults) or f"{len(sys.argv) - 1} manifests")
sys.exit(1 if faults else 0)
