"""`python -m potluck` is the command line."""

from potluck.cli import main

main()
