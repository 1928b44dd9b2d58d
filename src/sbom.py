"""Write the software bill of materials of a build: what was compiled into the extension.

CMake runs this once the extension is linked, with the Python that the build found the headers with.
The file is CycloneDX 1.6 JSON and goes into the wheel's ``.dist-info/sboms`` (PEP 770). It holds no
time and no path, so that the same build writes the same bytes.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

LLVM = "Apache-2.0 WITH LLVM-exception"
CUDA_LICENCE = "NVIDIA Software License Agreement"

# Of each header set: the distribution that has it, a header of it, that header's version macro.
HEADERS = [
    ("nvidia-cuda-runtime", "cuda.h", "CUDA_VERSION", {"license": {"name": CUDA_LICENCE}}),
    ("nvidia-nvtx", "nvtx3/nvToolsExt.h", "NVTX_VERSION", {"expression": LLVM}),
]


def component(
    name: str, version: str, licence: dict[str, Any], what: str, *, of: str
) -> dict[str, Any]:
    """Return one component; ``of`` is the type of its package URL, such as ``pypi``."""
    return {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "description": what,
        "licenses": [licence],
        "purl": f"pkg:{of}/{name}@{version}",
    }


def header_set(include: Path, name: str, header: str, macro: str, licence: Any) -> dict[str, Any]:
    """Return the component of the headers below ``include``, named after where they came from."""
    what = "headers: types, constants and inline functions"
    try:
        files = metadata.files(name) or []
        places = {Path(str(file.locate())).resolve() for file in files}
        if (include / header).resolve() in places:
            return component(name, metadata.version(name), licence, what, of="pypi")
    except metadata.PackageNotFoundError:
        pass
    text = (include / header).read_text(encoding="utf-8", errors="replace")
    found = re.search(rf"#\s*define\s+{macro}\s+(\d+)", text)
    return component(
        header.rpartition("/")[2], found[1] if found else "unknown", licence, what, of="generic"
    )


def macros(compiler: list[str]) -> dict[str, str]:
    """Return what the compiler and its C++ library define."""
    done = subprocess.run(
        [*compiler, "-x", "c++", "-std=c++17", "-E", "-dM", "-"],
        input="#include <cstddef>\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(re.findall(r"^#define (\w+) (.*)$", done.stdout, re.MULTILINE))


def linked_cpp_library(extension: Path, defined: dict[str, str]) -> list[dict[str, Any]]:
    """Return the C++ library if it is inside the extension; one that is looked up is not."""
    if b"libstdc++." in (content := extension.read_bytes()) or b"libc++." in content:
        return []
    what = "linked statically, with its unwinder"
    if version := defined.get("_LIBCPP_VERSION"):
        number = int(version)
        text = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        return [component("libcxx", text, {"expression": LLVM}, what, of="generic")]
    text = defined.get("_GLIBCXX_RELEASE", "unknown")
    licence = {"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}
    return [component("libstdcxx", text, licence, what, of="generic")]


def bill(options: argparse.Namespace) -> dict[str, Any]:
    defined = macros(options.compiler)
    python = {"expression": "Python-2.0.1"}
    bsd = {"expression": "BSD-3-Clause"}
    parts = [
        component("cpython", platform.python_version(), python, "headers", of="generic"),
        component("pybind11", options.pybind11, bsd, "headers: templates", of="pypi"),
        *linked_cpp_library(options.extension, defined),
    ]
    parts += [header_set(options.include, *each) for each in HEADERS]
    parts.sort(key=lambda each: str(each["name"]))
    own = component(
        "gpuprof", options.version, {"expression": "Apache-2.0"}, "the wheel", of="pypi"
    )
    tool = {
        "type": "application",
        "name": "clang" if "__clang__" in defined else "gcc",
        "version": defined.get("__VERSION__", '"unknown"').strip('"'),
    }
    content = {
        "metadata": {"tools": {"components": [tool]}, "component": own},
        "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [each["bom-ref"] for each in parts]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--extension", type=Path, required=True, help="the linked module")
    parser.add_argument("--version", required=True, help="of gpuprof")
    parser.add_argument("--pybind11", required=True, help="its version")
    parser.add_argument("--include", type=Path, required=True, help="folder of CUDA's headers")
    parser.add_argument("compiler", nargs="+", help="the C++ compiler's command")
    options = parser.parse_args()
    options.output.write_text(json.dumps(bill(options), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
