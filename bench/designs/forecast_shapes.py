"""The settings of ``forecast.py``: public facts of made-up rows and of jobs about them."""

from dataclasses import dataclass
from typing import Final

from dpspca.client.forecast import Hints
from dpspca.client.made_up_rows import SpikedModel
from dpspca.common.job import PRIVATE_BOUND, Budget, Centering, JobSpec, Scalar, Schema
from dpspca.common.privacy.units import PrivacyUnit

SPARSE: Final = ", sparsity auto"
MAIN: Final = ("auto", "analyze-gauss", f"analyze-gauss{SPARSE}", "dps-pca", "noisy-power")
PRUNED: Final = tuple(f"{name}{SPARSE}" for name in ("dps-pca", "noisy-power", "streaming-power"))
FEW: Final = ("auto", "analyze-gauss", "dps-pca")
PAIRS, BOUND, ADD_REMOVE = "pairs", "private bound", "row-add-remove"
OTHERS: Final = (
    *("mod-sulq", "sulq", "streaming-power", "power-iteration", "range-projection", "ppca", "output-perturbation"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Public facts of a job. ``sparsity`` is that of dps-pca; by default the true support.

    ``others`` are the least and the largest of the other eigenvalues; ``bound`` multiplies the norm bound.
    """

    rows: int
    dimension: int
    components: int
    support: int
    leading: float
    epsilon: float
    providers: int = 1
    others: tuple[float, float] = (0.0, 10.0)
    sparsity: int | None = None
    bound: float = 1.0
    methods: tuple[str, ...] = MAIN
    how: str = ""

    @property
    def model(self) -> SpikedModel:
        return SpikedModel(self.dimension, self.components, self.support, self.leading, self.others)

    @property
    def hints(self) -> Hints:
        """The model's public facts, as a user would give them."""
        beside = (self.dimension - self.components) * sum(self.others) / 2
        mean = self.components * self.leading + beside
        return Hints(
            rows=self.rows,
            providers=self.providers,
            leading=self.leading / mean,
            following=self.others[1] / mean,
            support=self.support,
            row_length=mean**0.5,
        )

    def job(self, method: str, seed: int = 0) -> JobSpec:
        options: dict[str, Scalar] = {"sparsity": "auto"} if method.endswith(SPARSE) else {}
        if method == "dps-pca":
            options = {"sparsity": self.sparsity or self.support}
        return JobSpec(
            schema=Schema(self.dimension),
            unit=PrivacyUnit.ROW_ADD_REMOVE if self.how == ADD_REMOVE else PrivacyUnit.ROW_REPLACE_ONE,
            budget=Budget(self.epsilon, 1e-6),
            norm_bound=PRIVATE_BOUND if self.how == BOUND else self.bound * self.model.norm_bound,
            centering=Centering.PAIRS if self.how == PAIRS else Centering.NONE,
            components=self.components,
            method=method.partition(",")[0],
            seed=seed,
            options=options,
        )


SHAPES: Final = (
    Shape(20_000, 110, 5, 10, 100, 1.0, sparsity=50, methods=FEW, how=PAIRS),
    Shape(3_000, 25, 2, 25, 50, 1.0, methods=FEW, how=PAIRS),
    Shape(30_000, 160, 4, 100, 60, 2.0, methods=FEW, how=PAIRS),
    Shape(20_000, 40, 3, 40, 60, 0.5, methods=FEW, how=PAIRS),
    Shape(20_000, 60, 3, 60, 60, 1.0, methods=FEW, how=ADD_REMOVE),
    Shape(10_000, 200, 2, 12, 80, 1.0, 2, methods=FEW, how=ADD_REMOVE),
    Shape(50_000, 100, 3, 100, 80, 0.1, methods=FEW),
    Shape(5_000, 50, 2, 50, 60, 4.0, methods=FEW),
    Shape(2_000, 20, 2, 20, 50, 8.0, methods=FEW),
    Shape(100_000, 64, 4, 64, 40, 0.2, methods=FEW),
    Shape(20_000, 200, 2, 20, 60, 0.3, 10, methods=FEW),
    Shape(4_000, 10, 2, 10, 40, 0.5, methods=FEW),
    Shape(1_000, 5, 1, 5, 30, 1.0, methods=FEW),
    Shape(2_000, 8, 3, 8, 40, 2.0, methods=FEW),
    Shape(40_000, 400, 3, 400, 150, 1.0, methods=FEW),
    Shape(60_000, 250, 5, 25, 60, 0.5, 3, methods=FEW),
    Shape(20_000, 110, 5, 10, 100, 1.0, methods=("auto",), how=BOUND),
    Shape(3_000, 25, 2, 25, 50, 1.0, methods=("auto",), how=BOUND),
    Shape(30_000, 160, 1, 160, 80, 1.0, 1, (1.0, 9.0), methods=("auto",), how=BOUND),
    Shape(10_000, 300, 2, 10, 100, 1.0, 4, methods=("auto",), how=BOUND),
    Shape(20_000, 1000, 2, 20, 150, 1.0, 1, (5.0, 5.0), methods=("auto",)),
    Shape(4_000, 9_000, 2, 10, 400, 2.0, 1, (5.0, 5.0), methods=("auto",)),
    Shape(20_000, 110, 5, 10, 100, 1.0, sparsity=50),
    Shape(20_000, 110, 5, 10, 100, 0.2, sparsity=20),
    Shape(40_000, 300, 5, 20, 100, 1.0, sparsity=40),
    Shape(10_000, 300, 2, 10, 100, 1.0, 4),
    Shape(5_000, 300, 2, 12, 60, 0.5),
    Shape(20_000, 500, 3, 15, 80, 0.5, 2, sparsity=50),
    Shape(20_000, 40, 3, 40, 60, 0.5, 3),
    Shape(3_000, 25, 2, 25, 50, 1.0),
    Shape(1_000, 60, 2, 60, 40, 0.5),
    Shape(30_000, 160, 1, 160, 80, 1.0, 1, (1.0, 9.0)),
    Shape(30_000, 160, 4, 100, 60, 2.0, 8),
    Shape(8_000, 250, 2, 8, 40, 2.0, 1, (5.0, 5.0)),
    Shape(50_000, 80, 6, 12, 40, 0.3, 5, (2.0, 4.0)),
    Shape(20_000, 150, 2, 10, 80, 1.0, 2, bound=3.0),
    Shape(20_000, 150, 2, 150, 80, 1.0, 1, (4.0, 6.0), bound=0.6),
    Shape(15_000, 1700, 2, 10, 150, 1.0, 1, (5.0, 5.0), methods=("auto", "dps-pca")),
    Shape(10_000, 20, 2, 20, 100, 1.0, methods=OTHERS),
    Shape(10_000, 20, 2, 20, 100, 5.0, 4, methods=OTHERS),
    Shape(20_000, 50, 3, 50, 60, 2.0, 2, methods=OTHERS),
)
QUICK: Final = (
    Shape(4_000, 110, 2, 8, 100, 2.0, 2, methods=("auto", "analyze-gauss", "dps-pca")),
    Shape(500, 30, 2, 30, 40, 0.3, methods=("auto", "noisy-power")),
)

EVERY: Final = (*MAIN, *PRUNED, *OTHERS)
COSTED: Final = (
    Shape(2_000, 20, 2, 20, 100, 1.0, 2, methods=EVERY),
    Shape(20_000, 110, 5, 10, 100, 1.0, sparsity=50, methods=EVERY),
    Shape(20_000, 50, 3, 50, 60, 2.0, 3, methods=EVERY),
    Shape(20_000, 110, 5, 10, 100, 1.0, methods=("auto", "dps-pca"), how=PAIRS),
    Shape(20_000, 110, 5, 10, 100, 1.0, methods=("auto",), how=BOUND),
    Shape(10_000, 400, 2, 10, 100, 2.0, 2, methods=MAIN),
    Shape(200_000, 30, 3, 30, 60, 0.5, methods=MAIN),
    Shape(5_000, 1_500, 2, 10, 300, 2.0, 1, (5.0, 5.0), methods=("auto", "analyze-gauss", "noisy-power")),
    Shape(4_000, 6_000, 2, 10, 400, 2.0, 1, (5.0, 5.0), methods=("auto", "dps-pca", "noisy-power")),
    Shape(60_000, 200, 4, 20, 80, 1.0, 4, methods=MAIN),
    Shape(600_000, 12, 2, 12, 50, 1.0, 2, methods=MAIN),
    Shape(3_000, 2_500, 3, 10, 300, 4.0, 1, (5.0, 5.0), methods=("auto", "analyze-gauss", "noisy-power")),
)
"""Jobs whose answers, bytes and time are measured. No time of the last three was used to find the constants."""
QUICK_COSTED: Final = (Shape(500, 12, 2, 12, 40, 2.0, 2, methods=("auto", "power-iteration")),)
