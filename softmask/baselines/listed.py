"""The baselines that come along: one entry each. Settings are those of their authors; `origin` says from where."""

from typing import Any

from softmask.baselines.entry import IN_SPACE, NETWORK, TRAINING, Baseline

_HERE = "softmask.baselines"
_NO_READOUT = tuple(name for name in NETWORK if name != "readout")
# What kernels and features choose from, they choose inside each training part.
_ONCE: dict[str, Any] = {
    "way": "once",
    "origin": "chosen inside each training part",
    "defaults": {"epochs": 1},
    "uses": (),
}
_GIN = {"hidden": 64, "layers": 4, "epochs": 350, "lr": 0.01, "decay": 0.5, "decay_every": 50, "batch_size": 32}
_PLAIN = "Errica et al., A fair comparison of graph neural networks for graph classification, ICLR 2020"

NETWORKS = (
    Baseline(
        name="gin",
        title="GIN",
        about="graph isomorphism network (GIN-0), with the readouts of all layers",
        reference="Xu et al., How powerful are graph neural networks?, ICLR 2019",
        way="fleet",
        origin="main.py of github.com/weihua916/powerful-gnns, whose epoch is 50 batches and not all graphs",
        row="GIN",
        defaults=_GIN,
        source=f"{_HERE}.gin:build_gin",
    ),
    Baseline(
        name="gin-eps",
        title="GIN-ε",
        about="the same with a learned epsilon in every layer",
        reference="Xu et al., How powerful are graph neural networks?, ICLR 2019",
        way="fleet",
        origin="main.py of github.com/weihua916/powerful-gnns, whose epoch is 50 batches and not all graphs",
        defaults=_GIN,
        source=f"{_HERE}.gin:build_gin_eps",
    ),
    Baseline(
        name="gcn",
        title="GCN",
        about="graph convolutional network, built like SMG-JK but for the layer",
        reference="Kipf and Welling, Semi-supervised classification with graph convolutional networks, ICLR 2017",
        way="fleet",
        origin="the settings of a soft-mask model",
        source=f"{_HERE}.conv_gnn:build_gcn",
    ),
    Baseline(
        name="sage",
        title="GraphSAGE",
        about="mean over neighbours, built like SMG-JK but for the layer",
        reference="Hamilton et al., Inductive representation learning on large graphs, NIPS 2017",
        way="fleet",
        origin="the settings of a soft-mask model",
        source=f"{_HERE}.conv_gnn:build_sage",
    ),
    Baseline(
        name="gat",
        title="GAT",
        about="graph attention with four heads, built like SMG-JK but for the layer",
        reference="Veličković et al., Graph attention networks, ICLR 2018",
        way="fleet",
        origin="the settings of a soft-mask model",
        uses=_NO_READOUT,
        source=f"{_HERE}.conv_gnn:build_gat",
    ),
    Baseline(
        name="dcnn",
        title="DCNN",
        about="diffusion-convolutional network: features carried by random walks of up to --layers steps",
        reference="Atwood and Towsley, Diffusion-convolutional neural networks, NIPS 2016",
        way="fleet",
        origin="its paper; Adam instead of AdaGrad",
        row="DCNN",
        defaults={"layers": 2, "epochs": 100, "lr": 0.05, "batch_size": 100},
        uses=("layers", "attributes", *TRAINING),
        source=f"{_HERE}.dcnn:build_dcnn",
    ),
    Baseline(
        name="ecc",
        title="ECC",
        about="edge-conditioned convolution, without the paper's coarsening",
        reference="Simonovsky and Komodakis, Dynamic edge-conditioned filters in CNNs on graphs, CVPR 2017",
        way="fleet",
        origin="its paper; Adam instead of SGD, no pyramid of graphs",
        row="ECC",
        defaults={"hidden": 48, "batch_size": 64, "dropout": 0.1, "readout": "mean", "edges": True},
        uses=(*NETWORK, "edges"),
        needs=("edge labels or attributes",),
        source=f"{_HERE}.ecc:build_ecc",
    ),
    Baseline(
        name="topk",
        title="Top-k pooling",
        about="three blocks that each keep the four fifths of the nodes with the highest scores",
        reference="Cangea et al., Towards sparse hierarchical graph classifiers, 2018; Gao and Ji, Graph U-Nets, 2019",
        way="fleet",
        origin="PyG's examples/proteins_topk_pool.py, which follows the paper; batches of 128 instead of 60",
        defaults={"hidden": 128, "lr": 5e-4, "epochs": 300},
        uses=_NO_READOUT,
        source=f"{_HERE}.pooling:build_topk",
    ),
    Baseline(
        name="sagpool",
        title="SAGPool",
        about="the same with scores by self-attention; half of the nodes are kept",
        reference="Lee et al., Self-attention graph pooling, ICML 2019",
        way="fleet",
        origin=(
            "main.py of github.com/inyeoplee77/SAGPool, which has a weight decay of 1e-4 and stops early, after up to "
            "100,000 epochs; here neither"
        ),
        row="TopK",
        defaults={"hidden": 128, "lr": 5e-4, "epochs": 300},
        uses=_NO_READOUT,
        source=f"{_HERE}.pooling:build_sagpool",
    ),
    Baseline(
        name="diffpool",
        title="DiffPool",
        about="two levels of soft clusters",
        reference="Ying et al., Hierarchical graph representation learning with differentiable pooling, NeurIPS 2018",
        way="fleet",
        origin=(
            "train.py of github.com/RexYing/diffpool for rate, norm and layers between poolings; it has batches of 20, "
            "1000 epochs, gradients clipped at 2 and settings for each set"
        ),
        row="DiffPool",
        defaults={"layers": 2},
        uses=("hidden", "layers", "attributes", *TRAINING),
        source=f"{_HERE}.diffpool:build_diffpool",
    ),
    Baseline(
        name="dgcnn",
        title="DGCNN",
        about="nodes sorted by their last channel, then convolutions along them",
        reference="Zhang et al., An end-to-end deep learning architecture for graph classification, AAAI 2018",
        way="fleet",
        origin="run_DGCNN.sh of github.com/muhanzhang/pytorch_DGCNN, that of MUTAG; other sets have other rates",
        row="DGCNN",
        defaults={"hidden": 32, "layers": 3, "lr": 1e-4, "batch_size": 50, "epochs": 300},
        uses=_NO_READOUT,
        source=f"{_HERE}.dgcnn:build_dgcnn",
    ),
    Baseline(
        name="ppgn",
        title="PPGNN",
        about="products of matrices over all pairs of nodes; small graphs only",
        reference="Maron et al., Provably powerful graph networks, NeurIPS 2019",
        way="fleet",
        origin=(
            "utils/config.py of github.com/hadarser/ProvablyPowerfulGraphNetworks_torch, that of most sets; "
            "it has batches of 5 graphs of exactly one size, first weights of Xavier's, and an adjacency matrix scaled "
            "by the degrees; where there are no labels, it looks at no degrees"
        ),
        row="PPGNN",
        defaults={"hidden": 400, "lr": 1e-4, "batch_size": 5},
        uses=("hidden", "layers", "attributes", *TRAINING),
        source=f"{_HERE}.ppgn:build_ppgn",
    ),
    Baseline(
        name="capsgnn",
        title="CapsGNN",
        about="capsules of nodes, of the graph and of the classes, with attention and dynamic routing",
        reference="Xinyi and Chen, Capsule graph neural network, ICLR 2019",
        way="fleet",
        origin=(
            "config.py of github.com/XinyiZ001/CapsGNN, which is that of ENZYMES, with its losses and first weights; "
            "it counts steps, not epochs, until the rate decays"
        ),
        row="CapsGNN",
        defaults={
            "hidden": 8,
            "layers": 5,
            "epochs": 3000,
            "decay": 0.9,
            "decay_every": 1333,
            "batch_size": 32,
            "dropout": 0.3,
        },
        uses=_NO_READOUT,
        tasks=("classification",),
        source=f"{_HERE}.capsgnn:build_capsgnn",
    ),
)

# Networks of Table 2: of molecules in space, that is, of all pairs of atoms and how far apart these are.
MOLECULAR = (
    Baseline(
        name="mpnn",
        title="MPNN",
        about="messages between all pairs of atoms by bond and distance, gated updates, set2set readout",
        reference="Gilmer et al., Neural message passing for quantum chemistry, ICML 2017",
        way="fleet",
        origin=(
            "PyG's examples/qm9_nn_conv.py, which has means of messages where the paper has sums, 300 epochs, and a "
            "rate that falls when the validation part no longer improves, where it falls by epochs here"
        ),
        defaults={"hidden": 64, "lr": 1e-3, "decay": 0.97, "decay_every": 1, "batch_size": 64},
        uses=("hidden", "layers", "attributes", *TRAINING),
        needs=(IN_SPACE,),
        source=f"{_HERE}.mpnn:build_mpnn",
    ),
    Baseline(
        name="dtnn",
        title="DTNN",
        about="deep tensor neural network: distances of all pairs of atoms in Gaussians, no bonds",
        reference="Schütt et al., Quantum-chemical insights from deep tensor neural networks, Nat. Commun. 2017",
        way="fleet",
        origin=(
            "DeepChem's models/torch_models/dtnn.py with the settings of its MoleculeNet, molnet/"
            "preset_hyper_parameters.py; a linear map of node features in the place of a vector for each element, and "
            "a network for each target, where it has one for all"
        ),
        defaults={"hidden": 50, "layers": 2, "lr": 1e-3, "decay": 1.0, "epochs": 100, "batch_size": 64},
        uses=("hidden", "layers", "attributes", *TRAINING),
        needs=(IN_SPACE,),
        source=f"{_HERE}.dtnn:build_dtnn",
    ),
    Baseline(
        name="ppgn-in-space",
        title="PPGNN in space",
        about="products of matrices over all pairs of atoms, of their distances and bonds",
        reference="Maron et al., Provably powerful graph networks, NeurIPS 2019",
        way="fleet",
        origin=(
            "configs/qm9_config.json of github.com/hadarser/ProvablyPowerfulGraphNetworks_torch, whose batches are of "
            "molecules of one size, and whose first weights are Xavier's"
        ),
        defaults={"hidden": 400, "lr": 1e-4, "decay": 0.8, "decay_every": 20, "epochs": 500, "batch_size": 64},
        uses=("hidden", "layers", "attributes", *TRAINING),
        needs=(IN_SPACE,),
        source=f"{_HERE}.ppgn_in_space:build_ppgn_in_space",
    ),
)

SHALLOW = (
    Baseline(
        name="wl",
        title="WL",
        about="Weisfeiler-Lehman subtree kernel with an SVM",
        reference="Shervashidze et al., Weisfeiler-Lehman graph kernels, JMLR 2011",
        row="WL",
        **_ONCE,
    ),
    Baseline(
        name="gk",
        title="GK",
        about="graphlet kernel with an SVM",
        reference="Shervashidze et al., Efficient graphlet kernels for large graph comparison, AISTATS 2009",
        row="GK",
        **_ONCE,
    ),
    Baseline(
        name="rw",
        title="RW",
        about="random walk kernel with an SVM",
        reference="Gärtner et al., On graph kernels: hardness results and efficient alternatives, COLT 2003",
        row="RW",
        **_ONCE,
    ),
    Baseline(
        name="pk",
        title="PK",
        about="propagation kernel with an SVM",
        reference="Neumann et al., Propagation kernels, Machine Learning 2016",
        row="PK",
        needs=("node labels",),
        **_ONCE,
    ),
    Baseline(
        name="fgsd",
        title="FGSD",
        about="histogram of spectral distances",
        reference="Verma and Zhang, Hunt for the unique, stable, sparse and fast feature learning on graphs, NIPS 2017",
        row="FGSD",
        **_ONCE,
    ),
    Baseline(
        name="awe",
        title="AWE",
        about="how often each anonymous walk occurs (the feature-based form)",
        reference="Ivanov and Burnaev, Anonymous walk embeddings, ICML 2018",
        row="AWE",
        **_ONCE,
    ),
    Baseline(
        name="dgk",
        title="DGK",
        about="deep graph kernel of Weisfeiler-Lehman colours, with vectors by word2vec (needs gensim)",
        reference="Yanardag and Vishwanathan, Deep graph kernels, KDD 2015",
        row="DGK",
        **_ONCE,
    ),
    *(
        Baseline(
            name=f"{what}-{learner}",
            title=f"{what} with {by}",
            about=f"{sees} and {by}: {blind}",
            reference=_PLAIN,
            **_ONCE,
        )
        for what, sees, blind in (
            ("labels", "counts of nodes and of their labels", "blind to all structure"),
            ("degrees", "counts of labels and of degrees", "blind to structure but for degrees"),
        )
        for learner, by in (("logistic", "logistic regression"), ("mlp", "a small perceptron"))
    ),
)
