import pytest

from softmask.data.catalog import TU_SETS
from softmask.errors import SettingError
from softmask.paper import paper_settings


def test_all_ten_sets_have_valid_settings():
    for name in TU_SETS:
        settings = paper_settings(name)
        assert settings.dropout == 0.5
        assert settings.batch_size == 128
        assert settings.readout == "sum"
        assert not settings.attributes


# variant, layers, hidden, epochs, rate, decay and its period, typed in from the authors' files
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MUTAG", ("m-smg-jk", 3, 128, 1000, 5e-4, 1.0, None)),
        ("PROTEINS", ("smg", 3, 128, 200, 5e-4, 0.75, 100)),
        ("NCI1", ("smg", 3, 128, 900, 5e-4, 1.0, None)),
        ("COLLAB", ("smg", 3, 256, 150, 5e-4, 0.75, 50)),
        ("ENZYMES", ("smg-jk", 3, 128, 1700, 5e-4, 1.0, None)),
        ("IMDB-BINARY", ("smg-jk", 2, 256, 300, 2e-4, 1.0, None)),
        ("IMDB-MULTI", ("smg-jk", 2, 256, 300, 5e-4, 1.0, None)),
        ("REDDIT-BINARY", ("smg-jk", 3, 256, 700, 5e-4, 1.0, None)),
        ("REDDIT-MULTI-5K", ("smg-jk", 3, 256, 550, 5e-4, 1.0, None)),
        ("REDDIT-MULTI-12K", ("smg-jk", 3, 256, 350, 5e-4, 1.0, None)),
    ],
)
def test_settings_are_those_of_the_authors(name, expected):
    s = paper_settings(name)
    period = s.decay_every if s.decay != 1 else None
    assert (s.variant, s.layers, s.hidden, s.epochs, s.lr, s.decay, period) == expected


def test_a_set_the_paper_has_not_is_refused():
    with pytest.raises(SettingError, match=r"'QM9'.*MUTAG"):
        paper_settings("QM9")
