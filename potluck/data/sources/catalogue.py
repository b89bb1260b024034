"""Public sets that `potluck data get` knows: where they are, and the SHA-256 by which they are known.

The checksums are those that other loaders publish: of MNIST and CIFAR those of Ruby's torchvision and of
MLDatasets.jl, of QMNIST those of PyTorch's torchvision, of UCI HAR what several projects found. Those of
Fashion-MNIST (Flux.jl) were checked against Debian's package, which differs in the headers of gzip only.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file to download; the first address that has it will do."""

    name: str
    sha256: str
    addresses: tuple[str, ...]
    size: int | None = None  # bytes, where known


@dataclass(frozen=True)
class Public:
    """A set: its files, and the folder in which its source looks for them."""

    about: str
    home: str  # where its authors say what may be done with it
    folder: str
    files: tuple[File, ...]


def _files(mirrors: tuple[str, ...], *files: tuple[str, int | None, str]) -> tuple[File, ...]:
    return tuple(
        File(name, digest, tuple(f"{mirror}/{name}" for mirror in mirrors), size)
        for name, size, digest in files
    )


PUBLIC = {
    "mnist": Public(
        "70,000 handwritten digits",
        "yann.lecun.com/exdb/mnist",
        "mnist",
        _files(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "https://storage.googleapis.com/cvdf-datasets/mnist",
            ),
            (
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    "qmnist": Public(
        "who wrote MNIST's digits, for data.partition = 'by_user'",
        "github.com/facebookresearch/qmnist",
        "mnist",
        _files(
            ("https://raw.githubusercontent.com/facebookresearch/qmnist/master",),
            (
                "qmnist-train-labels-idx2-int.gz",
                None,
                "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
            ),
            (
                "qmnist-test-labels-idx2-int.gz",
                None,
                "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
            ),
        ),
    ),
    "fashion-mnist": Public(
        "70,000 garments",
        "github.com/zalandoresearch/fashion-mnist",
        "fashion-mnist",
        _files(
            (
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            ),
            (
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
    ),
    "cifar-10": Public(
        "60,000 photographs in 10 classes",
        "www.cs.toronto.edu/~kriz/cifar.html",
        "cifar-10",
        _files(
            ("https://www.cs.toronto.edu/~kriz",),
            (
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
    ),
    "cifar-100": Public(
        "60,000 photographs in 100 classes",
        "www.cs.toronto.edu/~kriz/cifar.html",
        "cifar-100",
        _files(
            ("https://www.cs.toronto.edu/~kriz",),
            (
                "cifar-100-binary.tar.gz",
                168_513_733,
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        ),
    ),
    "har": Public(
        "10,299 windows of a phone's inertial signals, by 30 people",
        "archive.ics.uci.edu/dataset/240",
        "ucihar",
        _files(
            ("https://archive.ics.uci.edu/static/public/240",),
            (
                "human+activity+recognition+using+smartphones.zip",
                None,  # one project says 61,005,872
                "c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
            ),
        ),
    ),
}
