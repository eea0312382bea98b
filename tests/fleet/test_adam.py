"""The rows of Adam as CUDA takes them, all at once, against torch's own optimisers."""

import pytest
import torch

from softmask.fleet.adam import Adam


@pytest.mark.parametrize(("decoupled", "optimiser"), [(False, torch.optim.Adam), (True, torch.optim.AdamW)])
def test_rows_at_once(decoupled, optimiser):
    """Row 1 has no batch in every other step; its gradient then may be anything."""
    torch.manual_seed(0)
    start, rates, decays = torch.randn(3, 5, dtype=torch.float64), [1e-2, 3e-3, 1e-3], [0.0, 0.1, 0.2]
    rows = Adam(start.clone(), torch.tensor(decays), decoupled)
    alone = [start[r].clone().requires_grad_() for r in range(3)]
    made = [optimiser([p], lr=lr, weight_decay=d) for p, lr, d in zip(alone, rates, decays)]
    for step in range(6):
        gradient = torch.randn(3, 5, dtype=torch.float64)
        active = torch.tensor([True, step % 2 == 1, True])
        if not active[1]:
            gradient[1] = torch.nan if step else torch.inf
        rows._step_rows(gradient, torch.tensor(rates, dtype=torch.float64), active)
        for p, of_row, optim, on in zip(alone, gradient, made, active):
            if on:
                p.grad = of_row
                optim.step()
    torch.testing.assert_close(rows.flat, torch.stack([p.detach() for p in alone]), rtol=1e-7, atol=1e-9)
