"""In which precision a fleet computes."""

import numpy as np
import pytest
import torch

from softmask.data import Features
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.fleet import Fleet, Replica
from softmask.fleet.precision import precision_name, resolve
from softmask.nn import SoftMaskGNN

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("given", "device", "name", "compute", "tf32", "tf32_gradients"),
    [
        ("auto", CPU, "float32", torch.float32, False, False),
        ("auto", CUDA, "bf16", torch.bfloat16, True, True),
        ("float64", CUDA, "float64", torch.float64, False, False),
        ("float32", CUDA, "float32", torch.float32, False, False),
        ("tf32-gradients", CUDA, "tf32-gradients", torch.float32, False, True),
        ("tf32-gradients", CPU, "float32", torch.float32, False, False),
        ("tf32", CUDA, "tf32", torch.float32, True, True),
    ],
)
def test_what_a_precision_means(given, device, name, compute, tf32, tf32_gradients):
    meant = resolve(given, device)
    assert precision_name(given, device) == name
    assert (meant.compute, meant.tf32, meant.tf32_gradients) == (compute, tf32, tf32_gradients)
    assert meant.parameters == (torch.float64 if given == "float64" else torch.float32)


@pytest.mark.parametrize("ask", [resolve, precision_name])
def test_an_unknown_precision_is_refused(ask):
    with pytest.raises(SettingError, match=r"unknown precision 'half'; use auto, .*tf32-gradients"):
        ask("half", CPU)


def test_the_backward_pass_has_its_own_precision(monkeypatch):
    """On the CPU there is none of it, so what counts is when it is asked for."""
    store = motif(num_graphs=12, seed=0)
    features = Features.of(store)
    asked = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    for tf32_gradients in (False, True):
        fleet = Fleet(
            *(lambda: SoftMaskGNN(features.channels, 8, 2, 2), store, features(store), [Replica(0, np.arange(12))]),
            merge=False,
        )
        fleet.tf32_gradients = tf32_gradients
        asked.clear()
        fleet.train(1)
        # The training, its one backward pass, and back again.
        assert [p == "high" for p in asked] == [False, tf32_gradients, False, False]
