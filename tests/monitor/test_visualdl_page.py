"""VisualDL's web page shows what the monitor wrote: its server, opened in a browser."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.monitor import Monitor
from tests.report import browser, fake_run

pytest.importorskip("visualdl")


def get(address):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def server(tmp_path):
    monitor = Monitor(tmp_path / "amp", say=lambda line: None, policy=ScalingPolicy())
    for event in fake_run.events(120):
        monitor.step(event)
    monitor.close()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # without --language a browser that sends no Accept-Language gets an error 500
    command = [sys.executable, "-m", "visualdl.server.app", "--logdir", str(tmp_path / "amp"), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--language", "en"]
    with open(tmp_path / "server.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NO_PROXY": "127.0.0.1"})
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(150):
            try:
                get(f"{address}/app/index")
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "server.log").read_text()
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(20)


TAGS = {"loss", "loss_scale", "skipped", "skip_rate", "grad_norm", "lr", "samples_per_second", "half_share",
        "zero_grad_share"}  # fmt: skip


def test_the_web_page(server, tmp_path):
    browser.chromium()
    tags = set(json.loads(get(f"{server}/app/api/scalar/tags"))["data"]["tags"][0])
    assert tags >= TAGS
    html = browser.document(f"{server}/app/scalar", tmp_path / "profile")
    for tag in TAGS:
        assert f">{tag}<" in html, tag
    assert "<canvas" in html  # the first curve is drawn
