"""Check that the version and git's tags agree, and print the version.

The version is written once, in python/gpuprof/__init__.py. Git is asked here and not by the build,
so that a source distribution builds without git. Refused are:

- a tag of the form v1.2.3 on this commit that is not the version,
- a version whose tag is on another commit: development goes on under 1.3.0.dev0,
- with --release, a commit without its tag, a version that is not for release, or a distribution
  whose name is somebody else's on PyPI.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

VERSION = re.compile(r"\d+\.\d+\.\d+(rc\d+|\.dev\d+)?")
TAKEN = {"gpuprof"}  # the names of other projects on PyPI
TAG = re.compile(r"v\d")


def version_of(root: Path) -> str:
    text = (root / "python" / "gpuprof" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return str(version)


def name_of(root: Path) -> str:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    (name,) = re.findall(r'^name = "(.*)"$', text, re.MULTILINE)
    return str(name)


def tags(root: Path, *options: str) -> list[str]:
    """Return the version tags that ``git tag`` lists; none where this is no checkout."""
    if not (root / ".git").exists():
        return []
    command = ["git", "-C", str(root), "tag", "--list", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tag for tag in done.stdout.split() if TAG.match(tag)]


def problem(version: str, here: list[str], everywhere: list[str], *, release: bool) -> str | None:
    """Return what is wrong with a version, given the tags of this commit and of all."""
    own = f"v{version}"
    if not VERSION.fullmatch(version):
        return f"{version!r} is no version: expected 1.2.3, 1.2.3rc1 or 1.2.3.dev0"
    if others := [tag for tag in here if tag != own]:
        return f"the tag {others[0]} is on this commit, but the version is {version}"
    if own in everywhere and own not in here:
        return f"{own} is the tag of another commit: raise the version, for example to a .dev0"
    if release and ".dev" in version:
        return f"{version} is a version of development: set the version of the release"
    if release and own not in here:
        return f"this commit has no tag {own}: git tag {own}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--release", action="store_true", help="the tag must be on this commit")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    options = parser.parse_args()
    version = version_of(options.root)
    if options.release and name_of(options.root) in TAKEN:
        sys.exit(
            f"{name_of(options.root)} is another project on PyPI: give the distribution a name of "
            "its own in pyproject.toml"
        )
    here = tags(options.root, "--points-at", "HEAD")
    found = problem(version, here, tags(options.root), release=options.release)
    if found:
        sys.exit(f"version.py: {found}")
    print(version)


if __name__ == "__main__":
    main()
