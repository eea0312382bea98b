import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from softmask.study.choose import best_common_epoch, best_epoch

curves = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=12)


@settings(deadline=None)
@given(curves, st.booleans(), st.one_of(st.none(), st.integers(1, 4)))
def test_best_epoch_against_a_training_that_really_stops(drawn, higher, patience):
    metric, loss = (np.array(c, dtype=float) for c in zip(*drawn))
    best, since, seen = None, 0, []
    for epoch, (m, _) in enumerate(drawn):
        seen.append(epoch)
        if best is None or (m > best if higher else m < best):
            best, since = m, 0
        else:
            since += 1
        if patience is not None and since >= patience:
            break
    equals = [e for e in seen if drawn[e][0] == best]
    assert best_epoch(metric, loss, higher, patience) == min(equals, key=lambda e: (drawn[e][1], e))


def test_what_is_not_a_number_is_never_best():
    nan = np.nan
    assert best_epoch(np.array([nan, 0.5, nan]), np.array([nan, 1.0, nan]), True) == 1
    assert best_common_epoch(np.array([[nan, 0.4, 0.5], [0.9, 0.9, 0.5]]), True) == 1


def test_the_paper_chooses_one_epoch_for_all_folds():
    curves = np.array([[0.9, 0.5, 0.6], [0.1, 0.7, 0.7]])
    assert best_common_epoch(curves, True) == 2
    assert best_common_epoch(curves, False) == 0
