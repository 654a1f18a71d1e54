"""A program that shows by which compiler it was compiled, whatever that one calls itself."""

from __future__ import annotations

from typing import Final

KNOWN: Final[tuple[tuple[str, int, tuple[str, ...]], ...]] = (
    (
        "gcc",
        5,
        (
            "__GCC_IEC_559",
            "__GCC_ATOMIC_TEST_AND_SET_TRUEVAL",
            "__GXX_ABI_VERSION",
            "__DEC_EVAL_METHOD__",
            "__GCC_HAVE_DWARF2_CFI_ASM",
            "__PRAGMA_REDEFINE_EXTNAME",
        ),
    ),
    (
        "clang",
        4,
        (
            "__clang__",
            "__clang_version__",
            "__clang_patchlevel__",
            "__OPENCL_MEMORY_SCOPE_DEVICE",
            "__POINTER_WIDTH__",
            "__OBJC_BOOL_IS_BOOL",
        ),
    ),
    ("tcc", 1, ("__TINYC__",)),
)
"""Macros that a compiler defines by itself, and how many of them no other one has by chance."""


def source() -> str:
    """The program: it prints the names of the macros that are defined."""
    lines = ["int puts(const char *text);", "int main(void) {"]
    for _, _, macros in KNOWN:
        for macro in macros:
            lines += [f"#ifdef {macro}", f'  puts("{macro}");', "#endif"]
    return "\n".join([*lines, "  return 0;", "}", ""])


def recognized(printed: str) -> str | None:
    """Name the compiler that has these macros."""
    seen = set(printed.split())
    for name, enough, macros in KNOWN:
        if len(seen.intersection(macros)) >= enough:
            return name
    return None
