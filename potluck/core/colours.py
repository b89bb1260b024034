"""The colours that tell algorithms apart, in reports and in notebooks."""

# Okabe and Ito's colours: told apart by colour-blind readers, legible on white and on black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7AE6", "#7F8C8D")
