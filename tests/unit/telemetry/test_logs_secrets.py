"""No secret reaches a log, wherever in a record it stands."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.app.telemetry.formats import MAX_TEXT
from coilclaw.app.telemetry.logs import configure
from coilclaw.kernel.secret import Secret
from coilclaw.policy.redaction import SecretRedactor
from tests.support.scale import scaled

CANARY = "sk-Canary7Qz4vK9wXp2Rt"
LOG = logging.getLogger("coilclaw.agent.tools.shell")


@dataclass(frozen=True)
class Holder:
    """Something that shows what it holds."""

    text: str


def _simple(text: str) -> str:
    return text.replace(CANARY, "***")


_REDACTORS = {"simple": _simple, "real": SecretRedactor([Secret(CANARY)]).redact}
_AROUND = st.text(st.characters(codec="utf-8"), max_size=12)
_HOLDING = st.builds(lambda before, after: f"{before}{CANARY}{after}", _AROUND, _AROUND)
_LEAVES = st.one_of(
    _HOLDING,
    _HOLDING.map(str.encode),
    _HOLDING.map(lambda text: bytearray(text.encode())),
    _HOLDING.map(Holder),
    _HOLDING.map(ValueError),
    st.integers(),
    st.floats(),
    st.none(),
    st.just(Secret(CANARY)),
    st.just("x" * (MAX_TEXT - 5) + CANARY),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(_HOLDING, _AROUND, _HOLDING.map(str.encode)), inner, max_size=3),
        st.frozensets(_HOLDING, max_size=2),
    ),
    max_leaves=8,
)


def _log(form: str, redactor: str, fields: Mapping[object, object], texts: tuple[str, ...]) -> str:
    message, argument, cause, context = texts
    out = io.StringIO()
    with configure({"COILCLAW_LOG": form}, out, redact=_REDACTORS[redactor]):
        extra = {"event": "tool_failed", "fields": fields}
        # Escaped: "%s" may not take the first letter of the canary away.
        escaped = message.replace("%", "%%")
        template, misfit = f"{escaped} %s %r", f"{escaped} %d"
        LOG.info(template, argument, argument.encode(), extra=extra)
        LOG.info("%s", fields, extra={"event": message, "fields": argument})
        LOG.warning(misfit, argument)
        try:
            try:
                raise ValueError(cause)
            except ValueError as inner:
                error = OSError(context)
                error.add_note(message)
                raise error from inner
        except OSError:
            LOG.exception("failed", extra=extra)
    return out.getvalue()


@settings(max_examples=scaled(full=1000, default=80))
@given(
    st.sampled_from(["json", "human"]),
    st.sampled_from(sorted(_REDACTORS)),
    st.dictionaries(st.one_of(_HOLDING, _AROUND), _VALUES, max_size=4),
    st.tuples(_HOLDING, _HOLDING, _HOLDING, _HOLDING),
)
def test_a_canary_is_in_no_line(
    form: str, redactor: str, fields: dict[object, object], texts: tuple[str, str, str, str]
) -> None:
    logged = _log(form, redactor, fields, texts)
    assert CANARY not in logged
    assert CANARY[3:] not in logged
    assert len(logged.splitlines()) == 4


@pytest.mark.parametrize("form", ["json", "human"])
def test_without_a_redactor_the_canary_is_there(form: str) -> None:
    out = io.StringIO()
    with configure({"COILCLAW_LOG": form}, out, redact=str):
        LOG.info("%s", CANARY, extra={"fields": {CANARY: [CANARY.encode()]}})
    assert out.getvalue().count(CANARY) == 3


@pytest.mark.parametrize("form", ["json", "human"])
def test_a_secret_in_two_fields_is_not_put_together_by_us(form: str) -> None:
    halves = (CANARY[:11], CANARY[11:])
    out = io.StringIO()
    with configure({"COILCLAW_LOG": form}, out, redact=_REDACTORS["real"]):
        LOG.info("key %s", halves[0], extra={"fields": {"rest": halves[1]}})
    assert halves[0][3:] not in out.getvalue()
    assert halves[1] not in out.getvalue()


@pytest.mark.parametrize(("form", "spanning"), [("json", 'one", "b'), ("human", "one b=two")])
def test_a_secret_that_spans_the_form_itself_is_taken_out_with_it(form: str, spanning: str) -> None:
    out = io.StringIO()
    with configure({"COILCLAW_LOG": form}, out, redact=lambda text: text.replace(spanning, "***")):
        LOG.info("m", extra={"fields": {"a": "one", "b": "two"}})
    assert spanning not in out.getvalue()
    assert "***" in out.getvalue()


def test_a_secret_in_one_value_leaves_the_rest_as_it_is() -> None:
    out = io.StringIO()
    with configure({"COILCLAW_LOG": "json"}, out, redact=_simple):
        fields = {"path": f"/x/{CANARY}", CANARY: {"inner": [CANARY.encode()]}, "n": 1}
        LOG.info("key %s", CANARY, extra={"event": "tool_failed", "fields": fields})
    line = json.loads(out.getvalue())
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "coilclaw.agent.tools.shell",
        "event": "tool_failed",
        "message": "key ***",
        "path": "/x/***",
        "***": {"inner": ["***"]},
        "n": 1,
    }
