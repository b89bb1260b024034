"""The colours that tell algorithms apart, in reports and in notebooks, and those of all else."""

# Okabe and Ito's colours: told apart by colour-blind readers, legible on white and on black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7AE6", "#7F8C8D")

# Of all that isn't an algorithm: views, tiers, cohorts, edges, parts of a task. None is one of the above.
OTHERS = (
    *("#44AA99", "#CC6677", "#88AADD", "#DDB92F", "#AA4499"),
    *("#77BB44", "#9966DD", "#BB8855", "#22BBDD", "#999999"),
)
