"""A gateway that is told to stop while a model hangs: every client hears of it, and it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coilclaw.cli.model_server.server import ModelServer
from tests.acceptance.test_gateway import _until
from tests.support.agents import AgentHome
from tests.support.children import PATIENCE_S
from tests.support.gateways import events, home_at, serving


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[AgentHome, ModelServer]]:
    """A home whose model takes requests and never answers."""
    home = home_at(tmp_path)
    with ModelServer({"answers": [{"hang": True}] * 9}) as server:
        (home.home / "config.toml").write_text(
            f'workspace_dir = "{home.workspace}"\ndefault_provider = "real"\n'
            '[providers.models.real]\nkind = "openai-compatible"\nmodel = "m"\n'
            f'base_url = "{server.url}/v1"\ntimeout_s = 600\n'
        )
        yield home, server


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_clients_are_told_and_the_end_follows_within_the_grace_period(
    hanging: tuple[AgentHome, ModelServer], signals: list[int]
) -> None:
    home, model = hanging
    # A turn in a model call must not use up the time that cancelled calls have; nor, at a second
    # signal, the grace period.
    grace_s = 0.5 if len(signals) == 1 else 10 * PATIENCE_S
    settings = {"grace_s": grace_s, "cancel_s": 10 * PATIENCE_S}
    asked = {"model": "coilclaw", "messages": [{"role": "user", "content": "x"}], "stream": True}
    with (
        serving(home, settings) as served,
        served.client() as client,
        ThreadPoolExecutor(8) as pool,
    ):

        def follow(path: str, body: dict[str, object]) -> list[object]:
            with client.stream("POST", path, json=body) as stream:
                return [told for _, told in events(stream.iter_lines())]

        body = {"message": "x", "conversation_id": "whole"}
        whole = pool.submit(client.post, "/chat", json=body)
        _until(lambda: client.get("/status").json()["turns_running"] == 1)
        behind = pool.submit(client.post, "/chat", json=body)
        streamed = pool.submit(follow, "/chat", {"message": "x", "stream": True})
        openai = pool.submit(follow, "/v1/chat/completions", asked)
        _until(lambda: len(model.requests) == 3)
        _until(lambda: client.get("/status").json()["turns_waiting"] == 1)
        for number in signals:
            served.process.send_signal(number)
            time.sleep(0.3)
        for turn in (whole, behind):
            answer = turn.result(PATIENCE_S)
            assert (answer.status_code, answer.json()["error"]["rule"]) == (
                503,
                "gateway.stopping",
            )
        (error,) = streamed.result(PATIENCE_S)
        assert isinstance(error, dict)
        assert (error["error"]["rule"], error["status"]) == ("gateway.stopping", 503)
        *_, failed, done = openai.result(PATIENCE_S)
        assert isinstance(failed, dict)
        assert (failed["error"]["code"], done) == ("gateway.stopping", "[DONE]")
        assert served.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in served.logged()
    assert "rror" not in served.logged().replace("provider_errors", "")
