import contextlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softmask.data.fold_files import read_folds, read_parts
from softmask.errors import DataError, SettingError, SoftmaskError

SEPARATORS = ["\n", " ", ",", ", ", "\t", "\r\n"]
anew = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder, **files):
    """Writes text files; a list is one id a line. A dot in a name is given as two underscores."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else "".join(f"{i}\n" for i in content)
        (folder / name.replace("__", ".")).write_bytes(text.encode())
    return folder


@st.composite
def splits(draw):
    graphs = draw(st.integers(4, 60))
    folds = draw(st.integers(2, min(graphs // 2, 12)))
    order = np.random.default_rng(draw(st.integers(0, 2**31))).permutation(graphs)
    return graphs, [part.tolist() for part in np.array_split(order, folds)]


def others(tests, fold):
    return [i for k, test in enumerate(tests) if k != fold for i in test]


@anew
@given(split=splits(), separator=st.sampled_from(SEPARATORS), name=st.sampled_from(["{}", "test_idx-{}", "fold_{:03}"]))
def test_folder_round_trip(tmp_path_factory, split, separator, name):
    graphs, tests = split
    folder = tmp_path_factory.mktemp("folds")
    for number, test in enumerate(tests, start=1):
        (folder / f"{name.format(number)}.txt").write_bytes(separator.join(map(str, test)).encode())
    folds = read_folds(folder, graphs)
    assert len(folds) == len(tests)
    for fold, test in zip(folds, tests, strict=True):
        assert fold.test.dtype == np.int64
        assert fold.test.tolist() == sorted(test)
        assert fold.train is None
        assert fold.validation is None


@anew
@given(split=splits())
def test_layout_of_gin_round_trip(tmp_path_factory, split):
    graphs, tests = split
    folder = tmp_path_factory.mktemp("10fold_idx")
    for number, test in enumerate(tests, start=1):
        write(folder, **{f"test_idx-{number}__txt": test, f"train_idx-{number}__txt": others(tests, number - 1)})
    write(folder, README__md="about", notes__txt="no number in this name", __hidden1__txt="x")
    for number, fold in enumerate(read_folds(folder, graphs)):
        assert fold.test.tolist() == sorted(tests[number])
        assert fold.train.tolist() == sorted(others(tests, number))
        assert fold.validation is None


@anew
@given(split=splits())
def test_json_round_trips(tmp_path_factory, split):
    graphs, tests = split
    file = tmp_path_factory.mktemp("json") / "folds.json"
    file.write_text(json.dumps(tests))
    assert [fold.test.tolist() for fold in read_folds(file, graphs)] == [sorted(test) for test in tests]
    rest = [others(tests, k) for k in range(len(tests))]
    content = [
        {"test": test, "model_selection": [{"train": r[1:], "validation": r[:1]}]}
        for test, r in zip(tests, rest, strict=True)
    ]
    file.write_text(json.dumps(content))
    for fold, test, r in zip(read_folds(file, graphs), tests, rest, strict=True):
        assert fold.test.tolist() == sorted(test)
        assert fold.train.tolist() == sorted(r[1:])
        assert fold.validation.tolist() == r[:1]


def test_objects_may_have_no_model_selection(tmp_path):
    (tmp_path / "f.json").write_text('[{"test": [0, 1]}, {"test": [2], "model_selection": []}]')
    assert [f.test.tolist() for f in read_folds(tmp_path / "f.json", 3)] == [[0, 1], [2]]


def test_files_are_taken_by_number_and_not_by_letter(tmp_path):
    write(tmp_path, **{f"{n}__txt": [n - 1] for n in range(1, 13)})
    assert [fold.test.item() for fold in read_folds(tmp_path, 12)] == list(range(12))


def test_validation_files_without_training_files(tmp_path):
    write(tmp_path, test1__txt=[0, 1], test2__txt=[2, 3], val1__txt=[2], val2__txt=[0])
    folds = read_folds(tmp_path, 4)
    assert [fold.validation.tolist() for fold in folds] == [[2], [0]]
    assert [fold.train for fold in folds] == [None, None]


def test_a_word_that_only_ends_like_a_part_is_the_name_of_a_set(tmp_path):
    write(tmp_path, **{"retrieval-1__txt": [0, 1], "retrieval-2__txt": [2], "retrieval_Train-1__txt": [2]})
    write(tmp_path, **{"retrieval_Train-2__txt": [0, 1]})
    assert [fold.train.tolist() for fold in read_folds(tmp_path, 3)] == [[2], [0, 1]]


def test_training_and_validation_files_share_the_rest(tmp_path):
    write(
        tmp_path, test1__txt=[0, 1], train1__txt=[3], val1__txt=[2], test2__txt=[2, 3], train2__txt=[1], val2__txt=[0]
    )
    assert [fold.train.tolist() for fold in read_folds(tmp_path, 4)] == [[3], [1]]


def test_a_byte_order_mark_is_no_part_of_a_number(tmp_path):
    write(tmp_path, **{"1__txt": "\ufeff0\n1\n", "2__txt": "2"})
    assert read_folds(tmp_path, 3)[0].test.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"1__txt": [0, 1], "2__txt": [2, 1, 3]}, r"2\.txt, line 2: graph 1 is also in .*1\.txt, line 2"),
        ({"1__txt": [0, 1], "2__txt": [3]}, r"1 graph is in no fold's test part \(graph 2\)"),
        ({"1__txt": [1], "2__txt": [3]}, r"2 graphs are in no fold's test part \(the first is graph 0\)"),
        ({"1__txt": [0, 1], "2__txt": [2, 3, 7]}, r"2\.txt, line 3: there is no graph 7, the set has graphs 0 to 3$"),
        ({"1__txt": [0, 1, -1], "2__txt": [2, 3]}, r"1\.txt, line 3: there is no graph -1"),
        ({"1__txt": [0, 1, 0], "2__txt": [2, 3]}, r"1\.txt, line 3: graph 0 stands already in .*1\.txt, line 1"),
        ({"1__txt": "0\n\n1 x", "2__txt": [2, 3]}, r"1\.txt, line 3: 'x' is not the number of a graph"),
        ({"1__txt": "0\n1.0", "2__txt": [2, 3]}, r"1\.txt, line 2: '1\.0' is not"),
        ({"1__txt": "0 1", "2__txt": "9" * 5000}, r"2\.txt, line 1: '9{36}\.\.\. is not"),
        ({"1__txt": "0 1", "2__txt": "²"}, r"2\.txt, line 1: '²' is not"),
        ({"1__txt": [0, 1, 2, 3], "2__txt": " \n"}, r"2\.txt is empty"),
        ({"1__txt": [1, 2], "2__txt": [3, 4]}, r"2\.txt, line 2: there is no graph 4.*count from 1.*subtract 1"),
        ({"1__txt": [0, 1], "01__txt": [2, 3]}, r"01\.txt and 1\.txt are both the test part"),
        ({"a__txt": [0, 1]}, "has no fold files"),
        ({}, "has no fold files"),
        (
            {"test1__txt": [0, 1], "test2__txt": [2, 3], "train1__txt": [2]},
            r"test2\.txt has no train file beside it",
        ),
        (
            {"test1__txt": [0, 1], "test2__txt": [2, 3], "train1__txt": [2, 3], "train2__txt": [0]},
            r"train2\.txt does not hold all the rest of .*test2\.txt: 1 graph is in no part of this fold \(graph 1\)",
        ),
        (
            {"test1__txt": [0, 1], "test2__txt": [2, 3], "train1__txt": [2, 3], "train2__txt": [0, 1, 2]},
            r"test2\.txt, line 1: graph 2 is also in .*train2\.txt, line 3",
        ),
        (
            {"test1__txt": [0, 1], "test2__txt": [2, 3], "val1__txt": [2, 3], "val2__txt": [0]},
            r"test1\.txt: the other parts of this fold leave no graph to train on",
        ),
    ],
)
def test_bad_folders_say_what_and_where(tmp_path, files, message):
    with pytest.raises(DataError, match=message):
        read_folds(write(tmp_path / "folds", **files), 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[0, 1],\n[2, 3", "f.json, line 2: not JSON"),
        ("0\n1\n", "f.json, line 2: not JSON"),
        ("{}", "a list of folds was expected, got {}"),
        ("[]", "a list of folds was expected"),
        ("[" * 100_000, "nested too deeply"),
        ("[[" + "9" * 5000 + "], [0]]", "number too long"),
        ("[[0, 1], 2]", "fold 2: a list of test ids or an object with 'test' was expected, got 2"),
        ('[[0, 1], {"train": [1]}]', "fold 2: a list of test ids or an object"),
        ('[[0, 1], {"test": 1}]', "fold 2, test: a list of ids was expected, got 1"),
        ("[[0, 1], [2, 3.0]]", "fold 2, entry 2: 3.0 is not the number"),
        ("[[0, 1], [true, 3]]", "fold 2, entry 1: True is not the number"),
        ("[[0, 1], [2, [3]]]", r"fold 2, entry 2: \[3\] is not the number"),
        ("[[0, 1], []]", "fold 2 is empty"),
        ("[[0, 1], [1, 2, 3]]", "fold 2, entry 1: graph 1 is also in .*f.json, fold 1, entry 2"),
        ("[[0, 1], [2, 2, 3]]", "fold 2, entry 2: graph 2 stands already in .*fold 2, entry 1"),
        ("[[0, 1], [2]]", r"f.json: 1 graph is in no fold's test part \(graph 3\)"),
        ("[[1, 2], [3, 4]]", "fold 2, entry 2: there is no graph 4.*count from 1"),
        ("[[0, 1], [2, 99999999999999999999]]", "there is no graph 99999999999999999999"),
        ('[{"test": [0, 1], "model_selection": 1}, [2, 3]]', "fold 1: 'model_selection' must be a list"),
        ('[{"test": [0, 1], "model_selection": [1]}, [2, 3]]', "fold 1: 'model_selection' must be a list"),
        ('[{"test": [0, 1], "model_selection": [{}, {}]}, [2, 3]]', "fold 1 has 2 splits for model selection"),
        ('[{"test": [0, 1], "model_selection": [{"train": [2]}]}, [2, 3]]', "fold 1: .* has no 'validation'"),
        (
            '[{"test": [0, 1], "model_selection": [{"train": [2], "validation": [2, 3]}]}, [2, 3]]',
            "fold 1, validation, entry 1: graph 2 is also in .*fold 1, train, entry 1",
        ),
    ],
)
def test_bad_json_says_what_and_where(tmp_path, content, message):
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_folds(tmp_path / "f.json", 4)


def test_one_fold_is_no_cross_validation(tmp_path):
    with pytest.raises(SettingError, match="at least 2"):
        read_folds(write(tmp_path, **{"1__txt": [0, 1]}), 2)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        read_folds(tmp_path / "none", 4)
    with pytest.raises(DataError, match="cannot be read"):
        read_parts({"train": tmp_path / "none", "test": tmp_path / "none"}, 4)
    (tmp_path / "1.txt").write_bytes(b"\xff\xfe0")
    with pytest.raises(DataError, match=r"1\.txt is not text"):
        read_folds(tmp_path, 4)


@anew
@given(content=st.binary(max_size=60), json_file=st.booleans())
def test_any_bytes_give_folds_or_an_error_for_the_user(tmp_path_factory, content, json_file):
    folder = tmp_path_factory.mktemp("any")
    path = folder / "f.json" if json_file else folder
    (folder / ("f.json" if json_file else "1.txt")).write_bytes(content)
    (folder / "2.txt").write_text("1")
    with contextlib.suppress(SoftmaskError):
        read_folds(path, 2)


def test_parts_of_a_holdout(tmp_path):
    write(tmp_path, a=[4, 0, 2], b="1, 6\n", c="3")
    fold = read_parts({"train": tmp_path / "a", "validation": str(tmp_path / "c"), "test": tmp_path / "b"}, 8)
    assert fold.train.tolist() == [0, 2, 4]
    assert fold.validation.tolist() == [3]
    assert fold.test.tolist() == [1, 6]
    assert read_parts({"train": tmp_path / "a", "test": tmp_path / "b"}, 7).validation is None


@pytest.mark.parametrize(
    ("train", "validation", "test", "message"),
    [
        ([0, 1], [2], [3, 1], "test, line 2: graph 1 is also in .*train, line 2"),
        ([0, 1], [0], [3], "validation, line 1: graph 0 is also in .*train, line 1"),
        ([0, 1], [2], [4], "test, line 1: there is no graph 4, the set has graphs 0 to 3$"),
        ([1, 2], [3], [4], "test, line 1: there is no graph 4.*count from 1"),
        ([0, 1], [2, 2], [3], "validation, line 2: graph 2 stands already"),
        ([0, 1], "", [3], "validation is empty"),
        ([0, 1], "two", [3], "validation, line 1: 'two'"),
    ],
)
def test_bad_parts_say_what_and_where(tmp_path, train, validation, test, message):
    write(tmp_path, train=train, validation=validation, test=test)
    with pytest.raises(DataError, match=message):
        read_parts({name: tmp_path / name for name in ("train", "validation", "test")}, 4)


def test_parts_that_are_missing_or_unknown(tmp_path):
    with pytest.raises(SettingError, match="graphs to test on"):
        read_parts({"train": tmp_path / "a"}, 4)
    with pytest.raises(SettingError, match="unknown part 'valid'"):
        read_parts({"train": tmp_path / "a", "valid": tmp_path / "b"}, 4)
