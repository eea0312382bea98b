"""Pieces of work side by side on the cores of a CPU."""

from threading import Barrier, get_ident

import pytest
import torch

from softmask.fleet.side_by_side import side_by_side


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
def test_two_pieces_share_the_threads():
    met = Barrier(2, timeout=30)

    def run(piece):
        met.wait()  # it breaks unless both are under way at once
        return piece, torch.get_num_threads(), torch.is_grad_enabled()

    assert side_by_side(run, [3, 1]) == [(3, 2, True), (1, 2, True)]
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_one_piece_has_them_all():
    assert side_by_side(lambda _: (get_ident(), torch.get_num_threads()), [0]) == [(get_ident(), 4)]


@pytest.mark.usefixtures("four_threads")
def test_an_error_comes_through():
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda n: 1 // n, [1, 0, 2])
    assert torch.get_num_threads() == 4
