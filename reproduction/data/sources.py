"""Where the data come from: every file of the paper's experiments, its checksum, its authors' home.

The Iris data are not here: they come with scikit-learn. The archive of time series has been
published in several forms: separated by tabs or by spaces, in plain or in scientific notation. The
numbers are the same; written in one form, eight significant digits as in the archive of 2018, they
are the same bytes too, and a checksum tells.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from iknow.errors import MissingExtraError
from reproduction.data.files import DataFile, Download, Source

SERIES_ENDINGS = (".tsv", ".txt")


def extract_members(downloads: Sequence[Path], targets: Sequence[Path]) -> None:
    """Write members of one archive, each to the target that has its name."""
    (download,) = downloads
    with zipfile.ZipFile(download) as archive:
        for target in targets:
            target.write_bytes(_read_member(archive, [target.name]))


def extract_series(downloads: Sequence[Path], targets: Sequence[Path]) -> None:
    """Write tables of time series, each from the member that has its target's name, any ending."""
    (download,) = downloads
    with zipfile.ZipFile(download) as archive:
        for target in targets:
            content = _read_member(archive, [target.stem + ending for ending in SERIES_ENDINGS])
            target.write_bytes(rewrite_series(content))


def rewrite_series(content: bytes) -> bytes:
    """Rewrite lines of a label and values: tabs between, eight significant digits."""
    lines = []
    for line in content.decode("ascii").splitlines():
        if fields := line.split():
            label, *values = (float(field) for field in fields)
            lines.append("\t".join([f"{label:.0f}", *(f"{value:.8g}" for value in values)]))
    return "".join(f"{line}\n" for line in lines).encode()


def _read_member(archive: zipfile.ZipFile, names: Sequence[str]) -> bytes:
    """The first member with one of the names, in whatever folder of the archive."""
    members = {member.rpartition("/")[2]: member for member in archive.namelist()}
    for name in names:
        if name in members:
            return archive.read(members[name])
    raise KeyError(f"no {' or '.join(names)} in the archive")


MNIST_HOMES = (
    "http://yann.lecun.com/exdb/mnist/",  # the authors'; it often does not answer
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
UCR_HOME = "https://www.timeseriesclassification.com/aeon-toolkit/"
GTSRB_HOME = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"


def _mnist(name: str, size: int, sha256: str) -> Source:
    return Source(
        files=(DataFile(f"mnist/{name}", sha256, size),),
        downloads=(Download(tuple(home + name for home in MNIST_HOMES), f"sha256:{sha256}"),),
    )


def _gtsrb() -> ModuleType:
    try:
        from reproduction.data import gtsrb
    except ImportError as error:
        raise MissingExtraError("making 32x32 images of GTSRB", "reproduction") from error
    return gtsrb


MNIST_TRAIN_IMAGES = _mnist(
    "train-images-idx3-ubyte.gz",
    9_912_422,
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
)
MNIST_TRAIN_LABELS = _mnist(
    "train-labels-idx1-ubyte.gz",
    28_881,
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
)
MNIST_TEST_IMAGES = _mnist(
    "t10k-images-idx3-ubyte.gz",
    1_648_877,
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
)
MNIST_TEST_LABELS = _mnist(
    "t10k-labels-idx1-ubyte.gz",
    4_542,
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)

GRID_STABILITY = Source(
    files=(
        DataFile(
            "grid_stability/Data_for_UCI_named.csv",
            "7afc3154fed9cd65258b3403b60381fe6b0d832bf817a1ea4866395d05a84a83",
            2_417_871,
        ),
    ),
    downloads=(
        Download(
            (
                "https://archive.ics.uci.edu/static/public/471/"
                "electrical+grid+stability+simulated+data.zip",
            )
        ),
    ),
    converter=lambda: extract_members,
)

ITALY_POWER_DEMAND = Source(
    files=(
        DataFile(
            "italy_power_demand/ItalyPowerDemand_TRAIN.tsv",
            "fab46ef99232ada65773ed89b131954a91ec1da69803159cb1566f320dbaf22e",
            17_832,
        ),
        DataFile(
            "italy_power_demand/ItalyPowerDemand_TEST.tsv",
            "ab22aa53de4ef55f2e2bcbf0518565704aeec8d76f48ef1180903bf5814c47fc",
            273_602,
        ),
    ),
    downloads=(Download((UCR_HOME + "ItalyPowerDemand.zip",)),),
    converter=lambda: extract_series,
)

SYNTHETIC_CONTROL = Source(
    files=(
        DataFile(
            "synthetic_control/SyntheticControl_TRAIN.tsv",
            "58af636cbd5592bdda45ba638629e40f17c08354aa545a61fd41b92582bdd176",
            199_669,
        ),
        DataFile(
            "synthetic_control/SyntheticControl_TEST.tsv",
            "cd44464b200820913f928a952af78d512ee3924f6243053d28a6d45c0aacdb76",
            199_691,
        ),
    ),
    downloads=(Download((UCR_HOME + "SyntheticControl.zip",)),),
    converter=lambda: extract_series,
)

GTSRB_TRAINING = Source(
    files=(
        DataFile(
            "gtsrb/gtsrb32_train.npz",
            "44a34b57ced1a035431af84d6e3fddbe16de99dd938e66032e80b2667c9a6112",
        ),
        DataFile(
            "gtsrb/gtsrb32_valid.npz",
            "7add07b226fc0c8bfa60207f68eaf839d06359e60726f24e00d12f07ef51c341",
        ),
    ),
    downloads=(Download((GTSRB_HOME + "GTSRB_Final_Training_Images.zip",)),),
    converter=lambda: _gtsrb().convert_training,
)

GTSRB_TEST = Source(
    files=(
        DataFile(
            "gtsrb/gtsrb32_test.npz",
            "12b29887cc49f4c9118f3b65c3141cb55d46e44b14e74bf27afeb6a6727ba583",
        ),
    ),
    downloads=(
        Download(
            (GTSRB_HOME + "GTSRB_Final_Test_Images.zip",), "md5:c7e4e6327067d32654124b0fe9e82185"
        ),
        Download((GTSRB_HOME + "GTSRB_Final_Test_GT.zip",), "md5:fe31e9c9270bbcd7b84b7f21a9d9d9e5"),
    ),
    converter=lambda: _gtsrb().convert_test,
)
