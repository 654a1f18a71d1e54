"""Submissions for the C-compiler environment: a small honest compiler, and ways not to be one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HONEST = r"""
/* Compiles functions of no arguments that return an expression of constants and such functions. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[65536], *at;
static FILE *out;

static void refuse(const char *why) {
    fprintf(stderr, "cc: %s near '%.20s'\n", why, at);
    exit(1);
}

static void blanks(void) {
    while (isspace((unsigned char)*at)) at++;
}

static int eat(const char *word) {
    blanks();
    size_t size = strlen(word);
    if (strncmp(at, word, size) != 0) return 0;
    if (isalpha((unsigned char)*word) && (isalnum((unsigned char)at[size]) || at[size] == '_'))
        return 0;
    at += size;
    return 1;
}

static void want(const char *word) {
    if (!eat(word)) refuse("something else is expected");
}

static void expression(void);

static void primary(void) {
    blanks();
    if (eat("(")) {
        expression();
        want(")");
    } else if (isdigit((unsigned char)*at)) {
        fprintf(out, "  mov $%ld, %%eax\n", strtol(at, &at, 10));
    } else {
        refuse("no expression");
    }
}

static void term(void) {
    primary();
    while (eat("*")) {
        fprintf(out, "  push %%rax\n");
        primary();
        fprintf(out, "  pop %%rcx\n  imul %%ecx, %%eax\n");
    }
}

static void expression(void) {
    term();
    for (;;) {
        int minus = 0;
        if (!eat("+") && !(minus = eat("-"))) return;
        fprintf(out, "  push %%rax\n");
        term();
        fprintf(out, "  mov %%eax, %%ecx\n  pop %%rax\n  %s %%ecx, %%eax\n", minus ? "sub" : "add");
    }
}

int main(int count, char **words) {
    const char *made = NULL, *given = NULL;
    char file[4096], command[20000];
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "-o") == 0 && i + 1 < count) made = words[++i];
        else if (words[i][0] != '-') given = words[i];
    }
    FILE *source = given ? fopen(given, "r") : NULL;
    if (!made || !source) {
        fprintf(stderr, "cc: usage: cc FILE -o OUTPUT\n");
        return 2;
    }
    text[fread(text, 1, sizeof text - 1, source)] = 0;
    at = text;
    snprintf(file, sizeof file, "%s/made", getenv("TMPDIR"));
    snprintf(command, sizeof command, "%s.s", file);
    out = fopen(command, "w");
    fprintf(out, ".globl _start\n_start:\n");
    want("int"); want("main"); want("("); want("void"); want(")"); want("{"); want("return");
    expression();
    want(";"); want("}");
    blanks();
    if (*at) refuse("more than one function");
    fprintf(out, "  mov %%eax, %%edi\n  mov $60, %%eax\n  syscall\n");
    fclose(out);
    snprintf(command, sizeof command, "as %s.s -o %s.o && ld %s.o -o %s", file, file, file, made);
    return system(command) != 0;
}
"""
HONEST_BUILD = "gcc -O1 -w honest.c -o cc\n"

TAKES_OUTPUT = """\
out=; previous=
for word; do
  [ "$previous" = -o ] && out=$word
  previous=$word
done
"""
"""For a cc in shell: the name of the output file."""


def submit(directory: Path, files: Mapping[str, str], build: str) -> Path:
    """Write a submission; files that begin with ``#!`` are executable."""
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_text(content, encoding="utf-8")
        if content.startswith("#!"):
            (directory / name).chmod(0o755)
    (directory / "build.sh").write_text(f"set -e\n{build}", encoding="utf-8")
    return directory


def honest(directory: Path) -> Path:
    """A compiler of its own that knows very little."""
    return submit(directory, {"honest.c": HONEST}, HONEST_BUILD)


def script(directory: Path, text: str, build: str = ":\n") -> Path:
    """A cc in shell."""
    return submit(directory, {"cc": f"#!/bin/sh\n{text}\n"}, build)


def program(directory: Path, source: str, build: str = "") -> Path:
    """A cc in C, which a compiler of the machine builds."""
    return submit(directory, {"cc.c": source}, f"gcc -w cc.c -o cc\n{build}")
