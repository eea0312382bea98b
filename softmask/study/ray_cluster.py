"""The way to a Ray cluster: one that runs somewhere, or one that is started here and ended afterwards."""

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from softmask.errors import SettingError

# Seconds for a port to open, and for a cluster to let a first process in. Without these Ray itself tries for minutes.
_PORT_S, _JOIN_S = 5.0, 14.0
_QUIET = {"log_to_driver": False, "logging_level": logging.CRITICAL}
_ENVIRONMENT = {
    # Nothing is sent to the makers of Ray.
    "RAY_USAGE_STATS_ENABLED": "0",
    # With its logs turned off, Ray still prints errors that nobody asked for, and of every worker that died a line to
    # the standard output; the lines that match are left out.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Ray counts workers that it killed for lack of memory apart, and would start them again for ever.
    "RAY_task_oom_retries": "3",
}


# Joins a cluster, and says why not. It runs in a process of its own because nothing else can end a join that hangs.
_JOIN = """
import sys
import ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=50)
except Exception as error:
    sys.exit(f"because: {error}")
"""


def import_ray() -> Any:
    """The module, or an error that says how to install it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise SettingError("jobs on a Ray cluster need Ray: pip install 'softmask[ray]'") from None
    return ray


@contextmanager
def cluster(address: str | None, object_store: int) -> Iterator[Any]:
    """Gives the module ``ray``, connected; ends afterwards what it began.

    Args:
        address: ``HOST:PORT`` of a cluster's head, ``auto`` for one that this machine is part of, or ``None`` or
            ``local`` for a cluster of this machine's cores and GPUs that lives as long as the context.
        object_store: bytes that a new cluster keeps for data; one that runs has its own.
    """
    ray = import_ray()
    alone = address in (None, "local")
    if ray.is_initialized():
        # The caller's own connection: a process can have one only, and it is not ours to end.
        there = ray.get_runtime_context().gcs_address
        if not alone and address not in ("auto", there):
            raise SettingError(f"this process is connected to the Ray cluster at {there} already, not to {address}")
        yield ray
        return
    try:
        if alone:
            ray.init(address="local", include_dashboard=False, object_store_memory=object_store, **_QUIET)
        else:
            assert address is not None
            check(address)
            ray.init(address=address, **_QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(f"Ray cannot {'start' if alone else 'join ' + str(address)}: {_plain(str(error))}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def check(address: str) -> None:
    """Refuses an address that does not let this machine in; takes less than 30 seconds, whatever is or is not there."""
    if address != "auto":
        _check_port(address)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _JOIN, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_JOIN_S,
            check=False,
        )
        said, failed = ended.stderr, ended.returncode != 0
    except subprocess.TimeoutExpired as error:
        said, failed = error.stderr or b"", True
    if b"Unauthenticated" in said:
        # To send a token to an address is for the user to decide, so Ray does not do it by itself, and nor do we.
        raise SettingError(
            f"the Ray cluster at {address} asks for a token: set RAY_AUTH_MODE=token in the environment, with the "
            "token of the cluster (ray get-auth-token prints it where it was started) in the file ~/.ray/auth_token or "
            "in RAY_AUTH_TOKEN"
        )
    if failed and b"because:" in said and b"Failed to connect" not in said:
        why = said.decode(errors="replace").rpartition("because:")[2]
        raise SettingError(f"cannot join the Ray cluster at {address}: {_plain(why)}")
    if failed:
        raise SettingError(
            f"no Ray cluster let this machine in at {address} within {_JOIN_S:.0f} s. The address is that of the head "
            f"(ray start --head), and the machine that asks must be part of the cluster itself (ray start --address "
            f"{address})"
        )


def _check_port(address: str) -> None:
    host, _, port = address.rpartition(":")
    if "//" in address or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingError(
            f"{address!r} is no address of a Ray cluster: give HOST:PORT as ray start --head prints it, such as "
            "10.0.0.5:6379"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PORT_S).close()
    except (OSError, UnicodeError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise SettingError(
            f"no Ray cluster answers at {address} ({why}); is it running there (ray start --head), and may this "
            "machine reach the port?"
        ) from None


def _plain(said: str) -> str:
    """What Ray said, in one line and without the places of its files."""
    line = re.sub(r"(?<![\w.])/[\w./-]+", "a file", " ".join(said.split()))
    return line if len(line) <= 300 else line[:300] + " ..."
