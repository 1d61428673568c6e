"""What docs/accuracy.md shows of ``bench/accuracy.py``, and more: the arguments of each measurement, by name."""

from typing import Final

_PEERS: Final = "--methods=auto;diffprivlib;opendp"
_OTHERS: Final = "auto;mod-sulq;sulq;noisy-power;streaming-power;power-iteration;dps-pca, sparsity auto"
_MATRICES: Final = "auto;analyze-gauss;analyze-gauss, sparsity auto;mod-sulq;sulq;ppca"
_SETTINGS: Final = ("--epsilon=1,.3,3", "--owners=1,4,16", "--bound=1,.25,4")
_EVERY: Final = (
    "auto;analyze-gauss;mod-sulq;sulq;noisy-power;streaming-power;power-iteration;dps-pca;dps-pca, improved;ppca;"
    "diffprivlib;opendp"
)
ALL: Final[dict[str, list[str]]] = {
    "paper": ["--designs=P", "--epsilon=.1,.3,1,3,10", "--seeds=2", "--methods=auto;dps-pca;dps-pca, as published"],
    "designs": ["--designs=P,P4,H3,H4,D,S,M", "--seeds=4"],
    "every method": ["--designs=S", "--epsilon=.1,1,10", "--seeds=3", "--limit=20", f"--methods={_EVERY}"],
    "default": ["--methods=auto", "--seeds=8"],
    "draws of M": ["--designs=M", "--methods=auto", "--seeds=32"],
    "draws of P": ["--designs=P", "--methods=auto", "--seeds=16"],
    "owners": ["--designs=P", "--owners=4", "--methods=auto", "--seeds=16"],
    "fresh": ["--methods=auto", "--seeds=8", "--first-seed=100"],
    "wide": ["--designs=WP,WF,WS,WQ,WM,WD,WE", "--seeds=3", "--methods=auto;dps-pca;dps-pca, improved"],
    "settings": ["--designs=S,D,M", *_SETTINGS, "--seeds=4", "--methods=auto;analyze-gauss;dps-pca"],
    "tables": ["--tables", "--seeds=5"],
    "others": ["--tables", "--seeds=5", f"--methods={_OTHERS}"],
    "peers": ["--tables", "--seeds=3", _PEERS, "--limit=30"],
    "wine of ours": ["--tables=wine", "--epsilon=.1", "--seeds=40", f"--methods={_MATRICES}"],
    "wine": ["--tables=wine", "--epsilon=.1", "--seeds=40", _PEERS, "--limit=30"],
}
