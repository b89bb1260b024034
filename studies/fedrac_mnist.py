"""Fed-RAC beside FedAvg, HeteroFL, TiFL and SHARE on 40 phones, with handwritten digits.

`potluck study fedrac_mnist --scale paper` takes MNIST and 36 runs of about 12 s of one core, 4 minutes with
`--jobs 2`.
"""

from _fedrac import GRID, MEASURES, MNIST, MNIST_TIME, QUICK, QUICK_TIME, columns
from _fedrac_pages import headline

from potluck.experiment.study import Scale, Study, overlay

STUDY = Study(
    title="Fed-RAC: 40 phones, handwritten digits",
    question="As above, with 10,000 images and a perceptron, 20 rounds and a MAR of 11 min 20 s.",
    arms=columns(small=0.125, clouds=10),
    measures=MEASURES,
    page=headline((0.9, 0.92, 0.94)),
    notes="Links matter more here: the full model has 636 kB. The paper has a performance of 98.7 % for "
    "Fed-RAC, with 50,000 images and 200 rounds.",
    quick=Scale(overlay(QUICK, {"model": {"width": 1.0}}, QUICK_TIME), seeds=(1,)),
    paper=Scale(overlay(MNIST, MNIST_TIME), seeds=(1, 2, 3), tune=GRID),
)
