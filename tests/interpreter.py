"""Where tests of Triton kernels run: on the GPU where there is one, else in Triton's interpreter.

The interpreter is chosen when triton is imported, for the whole process. So on the CPU the tests of a file run in a
process of their own, which its `test_in_the_interpreter` starts with :func:`run_in_the_interpreter`.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
CUDA = torch.cuda.is_available() and not INTERPRETED
DEVICE = "cuda" if CUDA else "cpu"
kernels = pytest.mark.skipif(not CUDA and not INTERPRETED, reason="runs inside test_in_the_interpreter")
cuda = pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
outside = pytest.mark.skipif(CUDA or INTERPRETED, reason="the kernels are tested in this process")


def run_in_the_interpreter(file: str, *options: str) -> None:
    """Runs the tests of a file in a process with the interpreter; they must pass."""
    command = [sys.executable, "-m", "pytest", file, "-q", "-p", "no:cacheprovider", *options]
    command += ["-o", "addopts=--import-mode=importlib"]
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


if INTERPRETED:
    # What the interpreter of triton 3.6 cannot do: take a one-element array of a recent numpy as a loop's
    # bound, and multiply bfloat16 (which it keeps as 16-bit integers).
    import triton
    from triton.runtime import interpreter

    _patch_lang_tensor, _create_dot = (
        interpreter._patch_lang_tensor,
        interpreter.InterpreterBuilder.create_dot,
    )

    def patch_lang_tensor(tensor, scope):
        _patch_lang_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def widened(handle):
        if handle.dtype.scalar != triton.language.bfloat16:
            return handle
        data = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(data, triton.language.float32)

    def create_dot(self, a, b, *rest):
        return _create_dot(self, widened(a), widened(b), *rest)

    interpreter._patch_lang_tensor = patch_lang_tensor
    interpreter.InterpreterBuilder.create_dot = create_dot
