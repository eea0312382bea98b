"""QM9: bonds, features and targets of its molecules, the sample, and the whole set where the package is installed.

``qm9_rows.csv`` holds lines of the package's files as they are (MIT; the notice lies beside the shipped sample).
"""

import importlib.util
import json
import lzma
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from softmask.cli.data import app
from softmask.data import qm9
from softmask.data.bonds import UnmatchedError, match_bonds
from softmask.data.cache import raw_folder
from softmask.data.catalog import QM9_SETS, open_data
from softmask.data.check import check_data
from softmask.data.features import Features
from softmask.data.molecules import NODE_FEATURES, load_molecules, save_molecules, to_bytes
from softmask.data.qm9 import PARTS, TARGETS, UnmatchedMoleculeWarning, get_qm9, read_files, read_package
from softmask.data.samples import SAMPLE_FILE, draw_sample
from softmask.data.statistics import counts
from softmask.errors import DataError

ROWS = Path(__file__).parent / "qm9_rows.csv"
needs_rdkit = pytest.mark.skipif(importlib.util.find_spec("rdkit") is None, reason="RDKit is not installed")

SYMBOLS = {1: "H", 6: "C", 7: "N", 8: "O", 9: "F"}

# Mean, deviation (n - 1), smallest and largest of each target over the whole set.
KNOWN = {
    "mu": (2.672953, 1.503479, 0, 29.5564),
    "alpha": (75.281185, 8.173831, 6.31, 196.62),
    "homo": (-0.240210, 0.021967, -0.4286, -0.1017),
    "lumo": (0.011835, 0.046850, -0.1750, 0.1935),
    "gap": (0.252045, 0.047192, 0.0246, 0.6221),
    "r2": (1189.410643, 280.478157, 19.0002, 3374.7532),
    "zpve": (0.149090, 0.033138, 0.015951, 0.273944),
    "U0": (-410.819448, 39.894282, -714.568061, -40.478930),
    "U": (-410.810977, 39.894066, -714.560153, -40.476062),
    "H": (-410.810033, 39.894066, -714.559209, -40.475117),
    "G": (-410.852852, 39.894784, -714.602138, -40.498597),
    "Cv": (31.620364, 4.067581, 6.002, 46.969),
}


@pytest.fixture(scope="module")
def by_hand():
    """The chosen rows as PyG ``Data``, by their number in the collection."""
    pytest.importorskip("rdkit")
    molecules = read_files([ROWS])
    store = molecules.to_store()
    return {int(index): store[g] for g, index in enumerate(molecules.index)}


@pytest.fixture(scope="module")
def sample():
    return load_molecules(SAMPLE_FILE).to_store()


def bonds(data) -> list[tuple[str, int, float]]:
    """Each bond once: its elements, kind and length."""
    element = [SYMBOLS[int(z)] for z in data.x[:, NODE_FEATURES.index("atomic number")]]
    found = []
    for u, v, kind, length in zip(*data.edge_index.tolist(), data.edge_label[:, 0].tolist(), data.edge_attr[:, 0]):
        if u < v:
            found.append(("".join(sorted((element[u], element[v]))), kind, round(float(length), 2)))
    return sorted(found)


# Lengths of B3LYP/6-31G(2df,p) in Angstrom; 1.09 for C-H and 0.96 for O-H are what any textbook has.
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(1, [("CH", 1, 1.09)] * 4, id="methane"),
        pytest.param(2, [("HN", 1, 1.02)] * 3, id="ammonia"),
        pytest.param(3, [("HO", 1, 0.96)] * 2, id="water"),
        pytest.param(4, [("CC", 3, 1.2), *[("CH", 1, 1.06)] * 2], id="acetylene"),
        pytest.param(5, [("CH", 1, 1.07), ("CN", 3, 1.15)], id="hydrogen cyanide"),
        pytest.param(6, [*[("CH", 1, 1.11)] * 2, ("CO", 2, 1.2)], id="formaldehyde"),
        pytest.param(214, [*[("CC", 12, 1.39)] * 6, *[("CH", 1, 1.09)] * 6], id="benzene"),
        # The order of their atoms is not that of the SMILES.
        pytest.param(23, [("CC", 1, 1.36), *[("CC", 3, 1.21)] * 2, *[("CH", 1, 1.06)] * 2], id="C#CC#C"),
        pytest.param(24, [("CC", 1, 1.37), ("CC", 3, 1.2), ("CH", 1, 1.06), ("CN", 3, 1.16)], id="C#CC#N"),
        pytest.param(486, [*[("CC", 1, 1.36)] * 2, ("CC", 3, 1.21), *[("CN", 3, 1.16)] * 2], id="N#CC#CC#N"),
    ],
)
def test_bonds_by_hand(by_hand, number, expected):
    assert bonds(by_hand[number]) == expected


@pytest.mark.parametrize("number", [52466, 59818, 133487])
def test_bonds_found_by_geometry_are_no_longer_than_bonds(by_hand, number):
    found = bonds(by_hand[number])
    assert max(length for *_, length in found) < 1.6
    assert all(length < 1.25 for _, kind, length in found if kind == 3)
    assert sum(kind == 3 for _, kind, _ in found) == {52466: 3, 59818: 1, 133487: 1}[number]
    assert all(length < 1.15 for pair, _, length in found if "H" in pair)


def test_the_long_bond_is_kept(by_hand):
    assert max(bonds(by_hand[133857]), key=lambda bond: bond[2]) == ("CC", 1, 2.19)
    assert len(bonds(by_hand[133857])) == 22


def test_a_zwitterion(by_hand):
    """Beta-alanine, [NH3+]CCC([O-])=O: what is said of its bonds is what the SMILES says."""
    found = bonds(by_hand[271])
    assert [pair for pair, *_ in found].count("HN") == 3
    assert sorted(kind for pair, kind, _ in found if pair == "CO") == [1, 2]


def features(**by_name: float) -> list[float]:
    return [float(by_name.get(name.replace(" ", "_"), 0)) for name in NODE_FEATURES]


def test_features_by_hand(by_hand):
    assert NODE_FEATURES == ("H", "C", "N", "O", "F", "atomic number", "aromatic", "sp", "sp2", "sp3", "hydrogens")
    hydrogen = features(H=1, atomic_number=1)
    for number, heavy in (
        (1, [features(C=1, atomic_number=6, sp3=1, hydrogens=4)]),
        (2, [features(N=1, atomic_number=7, sp3=1, hydrogens=3)]),
        (3, [features(O=1, atomic_number=8, sp3=1, hydrogens=2)]),
        (4, [features(C=1, atomic_number=6, sp=1, hydrogens=1)] * 2),
        (6, [features(C=1, atomic_number=6, sp2=1, hydrogens=2), features(O=1, atomic_number=8, sp2=1)]),
        (214, [features(C=1, atomic_number=6, aromatic=1, sp2=1, hydrogens=1)] * 6),
        # C C C H N in the order of the positions; the SMILES is C#CC#N.
        (24, [features(C=1, atomic_number=6, sp=1)] * 2 + [features(C=1, atomic_number=6, sp=1, hydrogens=1)]),
    ):
        x = by_hand[number].x.tolist()
        assert x[: len(heavy)] == heavy
        assert number == 24 or x[len(heavy) :] == [hydrogen] * (len(x) - len(heavy))


def test_positions_and_targets_by_hand(by_hand):
    methane = by_hand[1]
    assert methane.pos.dtype == torch.float32
    torch.testing.assert_close(methane.pos[0], torch.tensor([-0.0126981359, 1.0858041578, 0.0080009958]))
    assert methane.y.dtype == torch.float64
    # Hartree, as in the paper; in electronvolts U0 would be -1101.5.
    expected = [0, 13.21, -0.3877, 0.1171, 0.5048, 35.3641, 0.044749, -40.47893, -40.476062, -40.475117]
    assert methane.y[0].tolist() == [*expected, -40.498597, 6.469]
    assert [unit for unit, _ in TARGETS.values()].count("Ha") == 8


@needs_rdkit
def test_what_does_not_belong_together_is_listed(tmp_path):
    lines = ROWS.read_text().splitlines(keepends=True)
    spoilt = [lines[0], lines[1].replace('"C"', '"N"', 1), lines[2].replace('"N"', '"(("', 1), lines[3]]
    (tmp_path / "rows.csv").write_text("".join(spoilt))
    with pytest.warns(UnmatchedMoleculeWarning, match="2 molecules are left out") as caught:
        molecules = read_files([tmp_path / "rows.csv"])
    assert molecules.index.tolist() == [3]
    assert "1 N: the heavy atoms" in str(caught[0].message)
    assert "2 ((: RDKit cannot read" in str(caught[0].message)
    save_molecules(molecules, tmp_path / "few.molecules.xz")
    listed = [remark for remark in check_data(tmp_path / "few.molecules.xz").remarks if "left out" in remark]
    assert len(listed) == 2


@needs_rdkit
def test_positions_of_another_molecule():
    """Methylacetylene's SMILES with the positions of cyclopropene: the same atoms, no order fits."""
    square = np.array([[0, 0, 0], [1.3, 0, 0], [0.65, 1.35, 0]])
    hydrogen = np.array([[-0.8, -0.7, 0], [2.1, -0.7, 0], [0.65, 2, 0.9], [0.65, 2, -0.9]])
    element = np.array([6, 6, 6, 1, 1, 1, 1], dtype=np.uint8)
    with pytest.raises(UnmatchedError, match="in no order"):
        match_bonds("CC#C", element, np.concatenate([square, hydrogen]))
    assert len(match_bonds("C1=CC1", element, np.concatenate([square, hydrogen])).kind) == 7


def test_sample_counts(sample):
    assert counts(sample) == QM9_SETS["qm9-sample"]
    assert not sample.directed
    assert sample.pos.shape == (sample.num_nodes, 3)
    assert sample.edge_attr.shape == (sample.num_edges, 1)
    assert sample.info["targets"] == list(KNOWN)
    assert len(sample.info["names"]) == 1000
    assert (SAMPLE_FILE.parent / "qm9-sample.LICENSE").read_text().startswith("MIT License")
    assert "qm9-sample.LICENSE" in sample.info["source"]
    assert SAMPLE_FILE.stat().st_size < 400_000


def test_sample_is_the_same_everywhere(sample):
    """A constant: results name it, so it must not change unnoticed."""
    assert sample.content_hash() == "169cf2758c96cfb596375a875fad297f8f47b59b2996e456c6519fafa9eec87b"


def test_sample_is_drawn_fairly(sample):
    """Means of 1000 molecules lie within four standard errors of those of all."""
    for (mean, std, low, high), column in zip(KNOWN.values(), sample.y.t()):
        assert abs(float(column.mean()) - mean) < 4 * std / 1000**0.5
        assert low <= float(column.min()) <= float(column.max()) <= high


def test_gap_and_energies_are_consistent(sample):
    y = dict(zip(sample.info["targets"], sample.y.t()))
    torch.testing.assert_close(y["gap"], y["lumo"] - y["homo"], atol=2e-4, rtol=0)
    assert bool((y["G"] < y["U0"]).all() & (y["U0"] < y["U"]).all() & (y["U"] < y["H"]).all())
    # H - U is RT at 298.15 K: 0.000944 Hartree.
    torch.testing.assert_close(y["H"] - y["U"], torch.full_like(y["U"], 0.000944), atol=2e-6, rtol=0)


def test_sample_valences(sample):
    """Without charges C has 4 bonds, N 3, O 2, F and H 1; in aromatic rings, half bonds count."""
    worth = {1: 1.0, 2: 2.0, 3: 3.0, 12: 1.5}
    _, target = sample.edges()
    value = torch.tensor([worth[kind] for kind in sample.edge_label[:, 0].tolist()])
    total = torch.zeros(sample.num_nodes).index_add_(0, target, value)
    column = dict(zip(NODE_FEATURES, sample.node_attr.t()))
    # RDKit reads a nitro group, N(=O)=O, as [N+](=O)[O-].
    charged = torch.tensor(["+" in name or "N(=O)=O" in name for name in sample.info["names"]])[sample.batch]
    plain = ~charged & (column["aromatic"] == 0)
    for symbol, valence in (("H", 1), ("C", 4), ("N", 3), ("O", 2), ("F", 1)):
        assert set(total[plain & (column[symbol] == 1)].tolist()) == {valence}
    ring = ~charged & (column["aromatic"] == 1)
    for symbol, allowed in (("C", {4, 4.5, 5}), ("N", {3, 4, 4.5}), ("O", {3})):
        assert set(total[ring & (column[symbol] == 1)].tolist()) <= allowed
    assert int(ring.sum()) > 500
    assert int((sample.node_attr[:, :5].sum(dim=1) != 1).sum()) == 0
    heavy = column["H"] == 0
    assert bool(((column["sp"] + column["sp2"] + column["sp3"])[heavy] == 1).all())


def test_sample_lengths(sample):
    source, target = sample.edges()
    length = (sample.pos[source] - sample.pos[target]).norm(dim=1)
    torch.testing.assert_close(sample.edge_attr[:, 0], length)
    assert 0.94 < float(length.min()) < float(length.max()) < 1.8


@needs_rdkit
def test_sample_against_rdkit(sample):
    """The bonds read back as the SMILES; and they are among those that RDKit finds by geometry alone.

    It finds more in strained cages, where atoms across a ring come near.
    """
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdDetermineBonds

    with rdBase.BlockLogs():
        for g, name in enumerate(sample.info["names"]):
            data = sample[g]
            element = data.x[:, 5].int().tolist()
            pairs = [(u, v, k) for u, v, k in zip(*data.edge_index.tolist(), data.edge_label[:, 0].tolist()) if u < v]
            if "+" not in name and "N(=O)=O" not in name:
                built = Chem.RWMol()
                for z, aromatic in zip(element, data.x[:, 6].tolist()):
                    atom = Chem.Atom(z)
                    atom.SetIsAromatic(bool(aromatic))
                    built.AddAtom(atom)
                for u, v, kind in pairs:
                    built.AddBond(u, v, Chem.BondType.values[kind])
                Chem.SanitizeMol(built)
                assert Chem.CanonSmiles(Chem.MolToSmiles(Chem.RemoveHs(built))) == Chem.CanonSmiles(name)
            xyz = "\n".join(f"{SYMBOLS[z]} {a:.6f} {b:.6f} {c:.6f}" for z, (a, b, c) in zip(element, data.pos.tolist()))
            near = Chem.MolFromXYZBlock(f"{len(element)}\n\n{xyz}\n")
            rdDetermineBonds.DetermineConnectivity(near, useVdw=True, covFactor=1.2)
            joined = {tuple(sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx()))) for b in near.GetBonds()}
            assert joined >= {(u, v) for u, v, _ in pairs}, name


def test_sample_by_name():
    store = open_data("qm9-sample")
    assert store.content_hash() == load_molecules(SAMPLE_FILE).to_store().content_hash()
    report = check_data("qm9-sample")
    assert report.known
    assert report.problems == []
    features = Features.of(store)
    assert (features.kind, features.channels) == ("attributes", 11)
    data = store[0]
    assert {"x", "pos", "edge_attr", "edge_label", "y"} <= set(data.keys())


def test_info_names_targets_and_licence():
    text = CliRunner().invoke(app, ["info", "qm9-sample"]).stdout
    assert "12: mu (D), alpha (a0^3), homo (Ha)" in text
    assert "MIT License" in text
    assert "in 3 dimensions" in text


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of three small files, in place of the real one, and no other QM9."""
    pytest.importorskip("rdkit")
    monkeypatch.delenv("SOFTMASK_DATA", raising=False)
    folder = tmp_path / "qm9pack" / "data"
    folder.mkdir(parents=True)
    head, *lines = ROWS.read_text().splitlines(keepends=True)
    for part, some in zip(PARTS, (lines[:5], lines[5:10], lines[10:])):
        (folder / part).write_text(head + "".join(some))
    fake = SimpleNamespace(origin=str(folder.parent / "__init__.py"))
    monkeypatch.setattr(qm9.util, "find_spec", lambda name: fake)
    monkeypatch.setattr(qm9.metadata, "version", lambda name: "0")
    monkeypatch.setattr(qm9, "MOLECULES", len(lines))
    return folder


def test_get(package):
    done = CliRunner().invoke(app, ["get", "qm9"], catch_exceptions=False)
    path = raw_folder() / "qm9.molecules.xz"
    assert done.stdout.split() == [str(path)]
    assert done.stderr == ""
    wanted = read_files([ROWS]).to_store()
    store = open_data("qm9")
    assert all(torch.equal(t, store.tensors()[name]) for name, t in wanted.tensors().items())
    shutil.rmtree(package)
    assert get_qm9() == path
    with pytest.raises(DataError, match=r"qm9_part1.csv: cannot be read .* pip install"):
        get_qm9(again=True)
    assert path.exists()


def test_progress(package, monkeypatch):
    seen = []
    get_qm9(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]


def test_a_file_cut_at_the_end_of_a_line(package):
    path = package / PARTS[2]
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match="14 molecules, but QM9 has 15; is a file cut short"):
        read_package()


@pytest.mark.parametrize("lacking", ["qm9pack", "rdkit"])
def test_without_the_package(monkeypatch, lacking):
    there = SimpleNamespace(origin="x")
    monkeypatch.setattr(qm9.util, "find_spec", lambda name: None if name == lacking else there)
    with pytest.raises(DataError, match=rf"{lacking} is missing: pip install 'softmask\[qm9\]'.*qm9-sample"):
        get_qm9()


def test_not_made_yet(monkeypatch):
    monkeypatch.delenv("SOFTMASK_DATA", raising=False)
    with pytest.raises(DataError, match=r"softmask\[qm9\].*softmask data get qm9.*qm9-sample needs neither"):
        open_data("qm9")


@needs_rdkit
@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (1, "Dipole_debye", "Dipole", "there is no column Dipole_debye"),
        (3, '"N"', '"N', "expected after"),
        (4, ",3,", ",three,", "Index is 'three', no whole number"),
        (4, ",3,", ",²,", "Index is '²', no whole number"),
        (4, "'O'", "'Xe'", "unknown element 'Xe'"),
        (2, ",0.,13.21", ",nan,13.21", "Dipole_debye is 'nan', no finite number"),
        (2, ",0.,13.21", ",__import__('os'),13.21", "Dipole_debye is .__import__.*, no finite number"),
        (2, "-0.0126981359,", "", "5 atoms, but 5 elements and 14 coordinates"),
        (2, "-0.0126981359", "1e999", "a position is '1e999', no finite number"),
        (2, ",0.,13.21", ",13.21", "24 cells, but the first line names 25"),
        (5, ",4,", ",3,", "molecule 3 for the second time"),
        (6, '"C#N"', '"C#N\xff"', "SMILES is"),
        (6, "\n", "\n\n", "line 7: 0 cells"),
    ],
)
def test_damaged_files(tmp_path, line, old, new, message):
    lines = ROWS.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path = tmp_path / "part.csv"
    path.write_bytes("".join(lines).encode("latin-1"))
    where = "" if message.startswith("line") else rf"line {line}: .*"
    with pytest.raises(DataError, match=f"{re.escape(str(path))}, {where}{message}"):
        read_files([path])


@needs_rdkit
def test_a_file_cut_anywhere(tmp_path):
    whole = ROWS.read_bytes()
    path = tmp_path / "part.csv"
    rng = np.random.default_rng(0)
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    for size in rng.choice(len(whole), 60, replace=False).tolist():
        # A last number that lost digits is a number still: only the count of molecules could tell.
        last = whole[:size].rsplit(b"\n", 1)[-1]
        if size in ends or size - 1 in ends or (last.count(b",") > 24 and last.rsplit(b'"', 1)[-1].count(b",") == 15):
            continue
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=rf"part.csv, line {whole[:size].count(10) + 1}: |no molecules"):
            read_files([path])


def test_molecules_files_refused(tmp_path):
    molecules = load_molecules(SAMPLE_FILE)
    path = tmp_path / "x.molecules.xz"
    good = SAMPLE_FILE.read_bytes()
    for bad, message in (
        (b"", "truncated"),
        (b"no xz", "no xz file"),
        (good[:-100], "truncated"),
        (good + b"more", "more after its end"),
        (lzma.compress(b"not safetensors"), "no file of molecules"),
    ):
        path.write_bytes(bad)
        with pytest.raises(DataError, match=message):
            load_molecules(path)
    spot = np.random.default_rng(1)
    for at in spot.choice(len(good), 20, replace=False).tolist():
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        with pytest.raises(DataError, match=r"x\.molecules\.xz: "):
            load_molecules(path)
    for name, place, value, message in (
        ("ends", (0, 1), 200, "leads out of its molecule"),
        ("ends", (0, 1), 0, "from an atom to itself"),
        ("kind", 0, 4, "kind has an unknown value"),
        ("element", 0, 92, "element has an unknown value"),
        ("hybridisation", 0, 9, "hybridisation has an unknown value"),
        ("atoms", 0, 250, "element has 18198 rows"),
        ("y", (0, 0), np.inf, "not finite"),
    ):
        kept = getattr(molecules, name)[place].copy()
        getattr(molecules, name).setflags(write=True)
        getattr(molecules, name)[place] = value
        save_molecules(molecules, path)
        getattr(molecules, name)[place] = kept
        with pytest.raises(DataError, match=message):
            load_molecules(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_molecules(tmp_path / "none.molecules.xz")


def test_a_newer_format(tmp_path, monkeypatch):
    monkeypatch.setattr("softmask.data.molecules.FORMAT_VERSION", 2)
    save_molecules(load_molecules(SAMPLE_FILE), tmp_path / "x.molecules.xz")
    monkeypatch.setattr("softmask.data.molecules.FORMAT_VERSION", 1)
    with pytest.raises(DataError, match="format 2, this softmask reads up to 1: update"):
        open_data(tmp_path / "x.molecules.xz")


@pytest.fixture(scope="module")
def whole():
    pytest.importorskip("rdkit")
    if importlib.util.find_spec("qm9pack") is None:
        pytest.skip("qm9pack is not installed")
    return read_package()


@pytest.mark.slow
def test_sample_is_part_of_the_whole(whole):
    """Bit for bit: the shipped file can be drawn anew from the package."""
    assert to_bytes(draw_sample(whole)) == lzma.decompress(SAMPLE_FILE.read_bytes())
    sample = load_molecules(SAMPLE_FILE)
    rows = np.searchsorted(whole.index, sample.index)
    assert np.array_equal(whole.y[rows], sample.y)
    store, part = whole.select(np.isin(whole.index, sample.index), "qm9").to_store(), sample.to_store()
    assert all(torch.equal(t, part.tensors()[name]) for name, t in store.tensors().items())


@pytest.mark.slow
def test_the_whole_set(whole):
    store = whole.to_store()
    assert counts(store) == QM9_SETS["qm9"]
    assert whole.info["unmatched"] == []
    assert (int(store.sizes.min()), int(store.sizes.max())) == (3, 29)
    for (name, (mean, std, low, high)), column in zip(KNOWN.items(), store.y.t()):
        found = [float(column.mean()), float(column.std()), float(column.min()), float(column.max())]
        assert found == pytest.approx([mean, std, low, high], abs=1e-6), name
    long = store.batch[store.edges()[1][store.edge_attr[:, 0] > 1.8]].unique()
    assert whole.index[long.numpy()].tolist() == [133857, 133859]


def test_json_of_the_list_has_the_molecules():
    rows = {row["name"]: row for row in json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)}
    assert rows["qm9"]["kind"] == rows["qm9-sample"]["kind"] == "molecules"
    assert rows["qm9"]["graphs"] == 130_831
