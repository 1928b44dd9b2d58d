"""Let a CUDA build of torch be imported without CUDA's libraries, which are large: name torch/lib.

Each library that torch is linked to, but for the small ones that pip has put there, becomes one of
functions that do nothing. Nothing that runs on the CPU calls them.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

_REAL = re.compile(r"lib(cudart|cupti|cuda)\.so")
_SYMBOL = re.compile(r" U (\w+)@(NVSHMEM|lib(?:cu|nccl|nv)[\w.]+)")
_BARE = re.compile(r" U ((?:nccl|cusparseLt|cuFile)\w+)$", re.MULTILINE)
_NEEDED = re.compile(r"NEEDED.*\[(lib(?:cu|nccl|nv)[^]]*)\]")


def output(*command: object) -> str:
    done = subprocess.run(map(str, command), capture_output=True, text=True, check=True)
    return done.stdout


def main(folder: Path) -> None:
    wanted: dict[str, set[str]] = collections.defaultdict(set)
    libraries: set[str] = set()
    for path in folder.glob("lib*.so*"):
        symbols = output("nm", "-D", "--undefined-only", path)
        for name, version in _SYMBOL.findall(symbols):
            wanted[version].add(name)
        wanted["libnccl.so.2"].update(_BARE.findall(symbols))
        libraries.update(_NEEDED.findall(output("readelf", "-d", path)))
    for library in libraries:
        if _REAL.match(library):
            continue
        version = "NVSHMEM" if "nvshmem" in library else library
        script = folder / "versions.map"
        script.write_text(f"{version} {{ global: *; }};", encoding="utf-8")
        source = "".join(f"void {name}(void) {{}}\n" for name in sorted(wanted[version]))
        linker = f"-Wl,-soname,{library},--version-script={script}"
        command = ["gcc", "-w", "-xc", "-shared", "-fPIC", linker, "-o", folder / library, "-"]
        subprocess.run(command, input=source, text=True, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
