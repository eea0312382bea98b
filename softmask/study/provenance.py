"""Where a result comes from: what a reader needs to get it again, and nothing about whose machine it was."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from softmask import __version__

PACKAGES = ("softmask", "torch", "torch_geometric", "numpy", "scipy", "pyarrow")


def provenance(command: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Commit, versions, device, date and command of a result, as plain JSON.

    Args:
        command: the command that makes it; by default :func:`this_command`.
        more: what else belongs to it, such as the data's content hash and the seed.
    """
    if command is None:
        command = this_command()
    return {
        "command": " ".join(command),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **_commit(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "device": _device(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        **more,
    }


def this_command() -> list[str]:
    """The command that is running, without the folders, which are those of one machine."""
    # Where Python itself was told to call the command (python -c, python -m), its name is not there.
    name = Path(sys.argv[0]).name
    words, skip = ["softmask" if name in ("-c", "-m", "__main__.py") else name], False
    for word in sys.argv[1:]:
        if skip or word.startswith(("--data-dir=", "--out=")):
            skip = False
            continue
        skip = word in ("--data-dir", "--out", "-o")
        if not skip:
            words.append(Path(word).name if Path(word).is_absolute() else word)
    return words


def _version(package: str) -> str | None:
    if package == "softmask":
        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> dict[str, Any]:
    """The commit of the source, and whether it was changed since.

    Where the source was copied to a machine without git, SOFTMASK_COMMIT says the commit; else both are None.
    """
    if told := os.environ.get("SOFTMASK_COMMIT"):
        return {"commit": told, "dirty": None}
    folder = Path(__file__).resolve().parents[1]  # the package: results depend on all of it

    def git(*arguments: str) -> str:
        answer = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=20)
        return answer.stdout.strip()

    try:
        # The source may lie inside an environment inside some other checkout, whose commit would say nothing.
        if not git("ls-files", __file__):
            return {"commit": None, "dirty": None}
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "."))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}


def _device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
