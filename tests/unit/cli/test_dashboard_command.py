"""The dashboard's command says what is missing or wrong before it serves anything."""

import errno
import os
import socket
import sys
from pathlib import Path

import pytest
from facts import facts

from dpspca.cli.dashboard.command import _listen, dashboard
from dpspca.common.errors import InvalidParameterError, MissingExtraError


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2"])
def test_a_missing_package_is_named_with_what_installs_it(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=facts(package, "'.[web]'")):
        dashboard(tmp_path / "any.toml")


def test_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=facts("any.toml", os.strerror(errno.ENOENT))):
        dashboard(tmp_path / "any.toml")
    (tmp_path / "bad.toml").write_text('coordinator = "nowhere"\n')
    with pytest.raises(InvalidParameterError, match=facts("bad.toml", "'nowhere'")):
        dashboard(tmp_path / "bad.toml")


def test_t43_only_this_machine_can_connect_and_a_port_in_use_is_refused() -> None:
    with _listen(0) as listening:
        address, port = listening.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(InvalidParameterError, match=facts(port, os.strerror(errno.EADDRINUSE), "--port")):
            _listen(port)
        socket.create_connection((address, port)).close()
