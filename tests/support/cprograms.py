"""Look-alikes of the trees that the C-compiler environment reads, and a compiler to try them."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.repository import ROOT

ENVIRONMENT = ROOT / "environments" / "c_compiler"


def loader(name: str) -> ModuleType:
    """A module of the environment, imported as its ``main.py`` does."""
    if str(ENVIRONMENT) not in sys.path:
        sys.path.append(str(ENVIRONMENT))
    return importlib.import_module(name)


def real_fixtures() -> Path:
    """Where real fixtures may be on this machine."""
    return Path(os.environ.get("COILCLAW_FIXTURES") or "/opt/tests")


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files by their names below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


WRAPPER = """\
    .text
    .globl main
main:
    subq $8, %rsp
    call target
    addq $8, %rsp
    ret
    .section .note.GNU-stack,"",@progbits
"""
SEVEN = """\
    .text
    .globl seven
seven:
    movl $7, %eax
    ret
    .section .note.GNU-stack,"",@progbits
"""


def wacct_files() -> dict[str, str | bytes]:
    """A small tree with one program of each kind that the real one has."""
    chapter = {f"tests/chapter_{n}/valid/only.c": "int main(void) { return 3; }" for n in range(21)}
    results: dict[str, Any] = {
        **{f"chapter_{n}/valid/only.c": {"return_code": 3} for n in range(1, 20)},
        "chapter_1/valid/prints.c": {"return_code": 0, "stdout": "a\nb"},
        "chapter_9/valid/libraries/add.c": {"return_code": 5},
        "chapter_9/valid/stack/asm.c": {"return_code": 7},
        "chapter_13/valid/root.c": {"return_code": 2},
        "chapter_13/valid/extra/helped.c": {"return_code": 4},
        "chapter_18/valid/deep/headed.c": {"return_code": 6},
        "chapter_19/folding/whole.c": {"return_code": 1},
        "chapter_20/int_only/own_main.c": {"return_code": 8},
        "chapter_20/int_only/wrapped.c": {"return_code": 9},
    }
    del chapter["tests/chapter_0/valid/only.c"], chapter["tests/chapter_20/valid/only.c"]
    properties = {
        "extra_credit_tests": {},
        "requires_mathlib": ["chapter_13/valid/root.c"],
        "libs": {
            "chapter_13/valid/extra/helped.c": ["chapter_13/helper_libs/four.c"],
            "chapter_20/int_only/wrapped.c": ["chapter_20/helper_libs/util.c"],
        },
        "assembly_libs": {"chapter_9/valid/stack/asm.c": ["chapter_9/valid/stack/seven"]},
    }
    return {
        **chapter,
        "LICENSE": "look-alike",
        "expected_results.json": json.dumps(results),
        "test_properties.json": json.dumps(properties),
        "tests/chapter_1/invalid_lex/at_sign.c": "int main(void) { return 0@1; }",
        "tests/chapter_1/invalid_parse/deep/no_brace.c": "int main(void) { return 0;",
        "tests/chapter_1/valid/prints.c": (
            "int puts(const char *s); int printf(const char *s, ...);\n"
            'int main(void) { puts("a"); printf("b"); return 0; }'
        ),
        "tests/chapter_1/README.md": "not a program",
        "tests/chapter_9/valid/libraries/add.c": "int add(int a, int b) { return a + b; }",
        "tests/chapter_9/valid/libraries/add_client.c": (
            "int add(int, int); int main(void) { return add(2, 3); }"
        ),
        "tests/chapter_9/valid/stack/asm.c": "int seven(void); int main(void) { return seven(); }",
        "tests/chapter_9/valid/stack/seven_linux.s": SEVEN,
        "tests/chapter_9/valid/stack/seven_osx.s": "for another machine",
        "tests/chapter_13/valid/root.c": (
            "double sqrt(double); volatile double four = 4.0;\n"
            "int main(void) { return (int)sqrt(four); }"
        ),
        "tests/chapter_13/valid/extra/helped.c": (
            "int four(void); int main(void) { return four(); }"
        ),
        "tests/chapter_13/helper_libs/four.c": "int four(void) { return 4; }",
        "tests/chapter_18/valid/deep/headed.c": (
            '#include "../heads/outer.h"\nint main(void) { return SIX; }'
        ),
        "tests/chapter_18/valid/heads/outer.h": '#include "inner.h"',
        "tests/chapter_18/valid/heads/inner.h": "#define SIX 6",
        "tests/chapter_18/invalid_types/headed.c": (
            '#include "../valid/heads/inner.h"\nint main(void) { return SIX->x; }'
        ),
        "tests/chapter_19/folding/whole.c": "int main(void) { return 1; }",
        "tests/chapter_20/helper_libs/wrapper_linux.s": WRAPPER,
        "tests/chapter_20/helper_libs/util.c": "int nine(void) { return 9; }",
        "tests/chapter_20/int_only/own_main.c": "int main(void) { return 8; }",
        "tests/chapter_20/int_only/wrapped.c": (
            "/* no main() here */ int nine(void); int target(void) { return nine(); } // main(\n"
        ),
    }


def ctestsuite_files() -> dict[str, str | bytes]:
    """A small tree of programs with the output of each."""
    place = "tests/single-exec"
    return {
        "LICENSE": "look-alike",
        f"{place}/00001.c": "int main() { return 0; }",
        f"{place}/00001.c.expected": "",
        f"{place}/00001.c.tags": "portable c89",
        f"{place}/00002.c": 'int puts(const char *); int main() { puts("hi"); return 0; }',
        f"{place}/00002.c.expected": "hi\n",
    }


def torture_files() -> dict[str, str | bytes]:
    """A small tree of programs that say nothing."""
    return {
        "execute/20000112-1.c": "main () { exit (0); }",
        "execute/20000113-1.c": '#include "20000112-1.c"\n',
        "execute/loud.c": 'main () { printf ("loud"); return 0; }',
        "execute/twice.c": '#ifdef NEVER\n#include "nowhere.h"\n#endif\nint main(){return 0;}',
        "execute/unlinked.c": "main () { nowhere_to_be_found (); }",
    }


def compiled(program: Any, folder: Path, cc: str = "gcc") -> tuple[bool, int, bytes]:
    """Compile and run a program as simply as it can be: whether it compiled, code, output."""
    sources = []
    for file in (*program.sources, *program.include):
        to = folder / (file.relative_to(program.root) if program.root else file.name)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
        if file in program.sources:
            sources.append(str(to))
    out = folder / "made.out"
    flags = program.reference_flags
    done = subprocess.run(
        [cc, *flags, *sources, *program.link, "-o", str(out)], capture_output=True, check=False
    )
    if done.returncode:
        return False, done.returncode, done.stderr
    ran = subprocess.run([out], capture_output=True, check=False, timeout=60, cwd=folder)
    return True, ran.returncode, ran.stdout
