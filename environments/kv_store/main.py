"""A key-value store over a text protocol, judged by what it says and by what survives."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

from coilclaw.environments.authoring import (
    Program,
    case_path,
    check,
    expect,
    expect_output,
    expect_success,
    fail,
    plain_file,
    run,
    session_path,
    setup,
    start,
    suite,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BUILD_S: Final = 60.0
ANSWER_S: Final = 30.0
LOAD_S: Final = 40.0
MAX_KEY: Final = 200
MAX_VALUE: Final = 65_536

basics = suite("basics")
protocol = suite("protocol")
durability = suite("durability")
edge_cases = suite("edge_cases")
load = suite("load")


@setup(timeout_s=BUILD_S + 10)
def build() -> None:
    """Run build.sh, which has to make an executable kv."""
    script = session_path() / "build.sh"
    check(script.is_file(), "there is no build.sh", kind="missing")
    expect_success(run(["sh", str(script)], timeout_s=BUILD_S), "build.sh")
    program = session_path() / "kv"
    if not program.is_file() or not os.access(program, os.X_OK):
        fail("build.sh made no executable file kv", kind="missing")


def data_file() -> Path:
    return case_path() / "data"


def kv(file: Path | None = None) -> Program:
    """Start a store on a data file."""
    return start([session_path() / "kv", file or data_file()], timeout_s=50)


def talk(asked: Iterable[str], answers: Iterable[str]) -> None:
    """Ask everything at once, then close the input; the answers must be exactly these."""
    text = "".join(f"{line}\n" for line in asked)
    done = run([session_path() / "kv", data_file()], stdin=text, timeout_s=ANSWER_S)
    expect_output(done, "".join(f"{line}\n" for line in answers), "kv")


def dialogue(store: Program, *lines: tuple[str, str]) -> None:
    """Ask one line after the other, each when the one before was answered."""
    for asked, answer in lines:
        expect(store.ask(asked, ANSWER_S), answer, f"the answer to {asked[:80]!r}")


# basics


@basics.test
def set_then_get() -> None:
    talk(["SET colour red", "GET colour"], ["OK", "VALUE red"])


@basics.test
def get_missing() -> None:
    talk(["GET nothing"], ["NONE"])


@basics.test
def set_replaces() -> None:
    talk(["SET a 1", "SET a 2", "GET a"], ["OK", "OK", "VALUE 2"])


@basics.test
def keys_are_told_apart() -> None:
    talk(
        ["SET a 1", "SET A 2", "SET ab 3", "GET a", "GET A", "GET ab"],
        ["OK", "OK", "OK", "VALUE 1", "VALUE 2", "VALUE 3"],
    )


@basics.test
def delete() -> None:
    talk(["SET a 1", "DEL a", "GET a"], ["OK", "DELETED", "NONE"])


@basics.test
def delete_missing() -> None:
    talk(["DEL a"], ["NONE"])


@basics.test
def exists() -> None:
    talk(["EXISTS a", "SET a 1", "EXISTS a"], ["NO", "OK", "YES"])


@basics.test
def count() -> None:
    talk(
        ["COUNT", "SET a 1", "SET b 2", "SET a 3", "COUNT", "DEL a", "COUNT"],
        ["COUNT 0", "OK", "OK", "OK", "COUNT 2", "DELETED", "COUNT 1"],
    )


@basics.test
def keys_are_sorted() -> None:
    talk(
        ["KEYS", "SET b 1", "SET a 1", "SET C 1", "SET a1 1", "KEYS"],
        ["KEYS", "OK", "OK", "OK", "OK", "KEYS C a a1 b"],
    )


@basics.test
def keys_by_prefix() -> None:
    talk(
        ["SET user:2 b", "SET user:1 a", "SET use c", "KEYS user:", "KEYS x"],
        ["OK", "OK", "OK", "KEYS user:1 user:2", "KEYS"],
    )


@basics.test
def increment() -> None:
    talk(
        ["INCR n", "INCR n", "SET m -5", "INCR m", "GET m"],
        ["VALUE 1", "VALUE 2", "OK", "VALUE -4", "VALUE -4"],
    )


@basics.test
def clear() -> None:
    talk(
        ["SET a 1", "SET b 2", "CLEAR", "COUNT", "GET a"],
        ["OK", "OK", "OK", "COUNT 0", "NONE"],
    )


# protocol


@protocol.test
def answers_at_once() -> None:
    """Each answer comes before the next line is sent."""
    with kv() as store:
        dialogue(store, ("SET a 1", "OK"), ("GET a", "VALUE 1"), ("COUNT", "COUNT 1"))


@protocol.test
def one_answer_for_each_line() -> None:
    asked = [line for n in range(50) for line in (f"SET k{n} {n}", f"GET k{n}")]
    talk(asked, [line for n in range(50) for line in ("OK", f"VALUE {n}")])


@protocol.test
def commands_in_any_case() -> None:
    talk(["set a 1", "Get a", "dEl a"], ["OK", "VALUE 1", "DELETED"])


@protocol.test
def unknown_command() -> None:
    talk(["FETCH a", "SET a 1"], ["ERROR unknown command", "OK"])


@protocol.test
def wrong_arguments() -> None:
    asked = ["GET", "GET a b", "SET", "SET a", "DEL", "EXISTS", "COUNT a", "INCR", "KEYS a b"]
    talk(asked, ["ERROR wrong arguments"] * len(asked))


@protocol.test
def empty_line() -> None:
    talk(["", "COUNT"], ["ERROR empty line", "COUNT 0"])


@protocol.test
def carriage_return() -> None:
    talk(["SET a 1\r", "GET a\r"], ["OK", "VALUE 1"])


@protocol.test
def value_keeps_its_spaces() -> None:
    talk(["SET a  two  spaces ", "GET a"], ["OK", "VALUE  two  spaces "])


@protocol.test
def quit_ends_it() -> None:
    talk(["SET a 1", "QUIT", "SET b 2"], ["OK", "BYE"])


@protocol.test
def end_of_input_ends_it() -> None:
    with kv() as store:
        dialogue(store, ("SET a 1", "OK"))
        expect_success(store.close(ANSWER_S), "kv at the end of its input")


@protocol.test
def last_line_without_end() -> None:
    done = run([session_path() / "kv", data_file()], stdin="SET a 1\nGET a", timeout_s=ANSWER_S)
    expect_output(done, "OK\nVALUE 1\n", "kv")


# durability


@durability.test
def survives_quit() -> None:
    talk(["SET a 1", "SET b two words", "DEL a", "QUIT"], ["OK", "OK", "DELETED", "BYE"])
    talk(["GET a", "GET b", "COUNT"], ["NONE", "VALUE two words", "COUNT 1"])


@durability.test
def survives_kill() -> None:
    with kv() as store:
        dialogue(store, ("SET a 1", "OK"), ("SET b 2", "OK"), ("DEL a", "DELETED"))
        store.kill()
    talk(["GET a", "GET b"], ["NONE", "VALUE 2"])


@durability.test
def increments_survive_kill() -> None:
    for n in range(1, 5):
        with kv() as store:
            dialogue(store, ("INCR n", f"VALUE {n}"))
            store.kill()


@durability.test
def clear_survives_kill() -> None:
    with kv() as store:
        dialogue(store, ("SET a 1", "OK"), ("CLEAR", "OK"), ("SET b 2", "OK"))
        store.kill()
    talk(["GET a", "GET b", "COUNT"], ["NONE", "VALUE 2", "COUNT 1"])


@durability.test("kill_{n}", n=range(1, 6))
def kill(n: int) -> None:
    """Killed after any number of answers, it has kept all that it answered, and nothing else."""
    chosen = random.Random(n)  # noqa: S311 - the same cases every time
    model: dict[str, str] = {}
    for _ in range(3):
        with kv() as store:
            for _ in range(chosen.randint(1, 25)):
                key = f"k{chosen.randint(0, 8)}"
                if chosen.random() < 0.3:
                    answer = "DELETED" if model.pop(key, None) is not None else "NONE"
                    dialogue(store, (f"DEL {key}", answer))
                else:
                    model[key] = f"v {chosen.randint(0, 10**9)}"
                    dialogue(store, (f"SET {key} {model[key]}", "OK"))
            store.kill()
    keys = [f"k{n}" for n in range(9)]
    kept = [f"VALUE {model[key]}" if key in model else "NONE" for key in keys]
    talk(["COUNT", *(f"GET {key}" for key in keys)], [f"COUNT {len(model)}", *kept])


@durability.test("torn_tail_{bytes}", bytes=(1, 2, 7, 20))
def torn_tail(bytes: int) -> None:  # noqa: A002 - the name of the field
    """With the end of the file missing, only the last change may be."""
    talk([f"SET k{n} {'x' * 40}{n}" for n in range(10)], ["OK"] * 10)
    size = plain_file(data_file()).stat().st_size
    os.truncate(data_file(), max(size - bytes, 0))
    first = [f"VALUE {'x' * 40}{n}" for n in range(9)]
    talk([f"GET k{n}" for n in range(9)], first)
    talk(["SET k9 again", "QUIT"], ["OK", "BYE"])
    talk(["GET k8", "GET k9", "COUNT"], [first[8], "VALUE again", "COUNT 10"])


@durability.test
def compact_keeps_everything() -> None:
    talk(
        ["SET a 1", "SET b 2", "SET a 3", "DEL b", "SET c 4", "COMPACT", "SET d 5", "KEYS"],
        ["OK", "OK", "OK", "DELETED", "OK", "OK", "OK", "KEYS a c d"],
    )
    talk(["GET a", "GET b", "GET c", "GET d"], ["VALUE 3", "NONE", "VALUE 4", "VALUE 5"])


@durability.test
def compact_makes_it_small() -> None:
    value = "y" * 200
    asked = [*(f"SET a {n} {value}" for n in range(500)), "COMPACT", "GET a", "QUIT"]
    talk(asked, [*["OK"] * 501, f"VALUE 499 {value}", "BYE"])
    size = plain_file(data_file()).stat().st_size
    check(
        size <= 4096, f"one value of 204 bytes takes {size} bytes after COMPACT", kind="too_large"
    )


@durability.test
def kill_while_compacting() -> None:
    for attempt in range(3):
        with kv() as store:
            for n in range(20):
                dialogue(store, (f"SET k{n} {attempt}", "OK"))
            store.send("COMPACT\n")
            store.kill()
        talk(
            ["COUNT", *(f"GET k{n}" for n in range(20))],
            ["COUNT 20", *[f"VALUE {attempt}"] * 20],
        )


@durability.test
def leftover_file_is_ignored() -> None:
    talk(["SET a 1"], ["OK"])
    left = data_file().with_name("data.tmp")
    left.unlink(missing_ok=True)
    left.write_bytes(b"SET a 9\nhalf of somethi")
    talk(["GET a", "COMPACT", "GET a"], ["VALUE 1", "OK", "VALUE 1"])
    talk(["GET a"], ["VALUE 1"])


# edge_cases


@edge_cases.test
def unicode() -> None:
    talk(["SET ключ 値 🙂 é", "GET ключ"], ["OK", "VALUE 値 🙂 é"])


@edge_cases.test
def empty_value() -> None:
    talk(["SET a ", "GET a", "EXISTS a"], ["OK", "VALUE ", "YES"])


@edge_cases.test
def longest_key() -> None:
    key = "k" * MAX_KEY
    talk([f"SET {key} 1", f"GET {key}"], ["OK", "VALUE 1"])


@edge_cases.test
def key_too_long() -> None:
    key = "k" * (MAX_KEY + 1)
    talk(
        [f"SET {key} 1", f"GET {key}", f"INCR {key}", "COUNT"],
        ["ERROR bad key", "ERROR bad key", "ERROR bad key", "COUNT 0"],
    )


@edge_cases.test
def key_is_measured_in_bytes() -> None:
    talk([f"SET {'é' * 100} 1", f"SET {'é' * 101} 1"], ["OK", "ERROR bad key"])


@edge_cases.test
def longest_value() -> None:
    value = "v" * MAX_VALUE
    talk([f"SET a {value}"], ["OK"])
    talk(["GET a"], [f"VALUE {value}"])


@edge_cases.test
def value_too_long() -> None:
    talk(
        ["SET a 1", f"SET a {'v' * (MAX_VALUE + 1)}", "GET a"],
        ["OK", "ERROR value too long", "VALUE 1"],
    )


@edge_cases.test
def increment_what_is_no_number() -> None:
    talk(
        ["SET a one", "INCR a", "SET b 1.5", "INCR b", "SET c ", "INCR c", "GET a"],
        [*["OK", "ERROR not an integer"] * 3, "VALUE one"],
    )


@edge_cases.test
def increment_beyond_64_bits() -> None:
    talk(["SET n 18446744073709551615", "INCR n"], ["OK", "VALUE 18446744073709551616"])


@edge_cases.test
def values_look_like_commands() -> None:
    talk(
        ["SET a DEL a", "SET b SET c 1", "GET a", "GET b", "COUNT"],
        ["OK", "OK", "VALUE DEL a", "VALUE SET c 1", "COUNT 2"],
    )
    talk(["GET a", "COUNT"], ["VALUE DEL a", "COUNT 2"])


@edge_cases.test
def second_process_is_refused() -> None:
    """While one process has the data file, another says so and ends with exit code 1."""
    with kv() as first:
        dialogue(first, ("SET a 1", "OK"))
        other = run([session_path() / "kv", data_file()], stdin="SET a 2\n", timeout_s=ANSWER_S)
        expect_output(other, "ERROR locked\n", "the second kv", exit_code=1)
        dialogue(first, ("GET a", "VALUE 1"))
        first.kill()
    talk(["GET a"], ["VALUE 1"])


@edge_cases.test
def wrong_usage() -> None:
    done = run([session_path() / "kv"], timeout_s=ANSWER_S)
    expect_success(done, "kv without a data file", exit_code=2)


# load


@load.test("batch_{n}", n=(100, 1000, 5000), timeout_s=2 * LOAD_S)
def batch(n: int) -> None:
    """Many writes, then many reads from what is on disk."""
    stored = "".join(f"SET key:{i} value {i * i}\n" for i in range(n))
    done = run([session_path() / "kv", data_file()], stdin=stored, timeout_s=LOAD_S)
    expect_output(done, "OK\n" * n, "kv")
    asked = "".join(f"GET key:{i}\n" for i in reversed(range(n)))
    done = run([session_path() / "kv", data_file()], stdin=asked, timeout_s=LOAD_S)
    expect_output(done, "".join(f"VALUE value {i * i}\n" for i in reversed(range(n))), "kv")
