import pytest

from softmask.data.synthetic import motif
from softmask.study import Settings


@pytest.fixture(scope="session")
def graphs():
    return motif(num_graphs=48, seed=0)


@pytest.fixture(scope="session")
def quick():
    return Settings(hidden=8, layers=2, epochs=6, batch_size=16, lr=5e-3)
