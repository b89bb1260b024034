"""The campaign: everything bad that was ever tried on Potluck, by the thousand, as part of the repo.

A row is a module beside this one, without an underscore before its name:

TITLE       what is tried, for the table
COUNT       tries of the whole campaign (`make campaign`)
QUICK       tries of `make test`; a few seconds
attempt     (number, folder): one try, fully determined by its number, in an empty folder of its own;
            it raises when the try fails

Numbers go from 0 to COUNT - 1. `python tests/campaign --help` says how to run some of them.
"""
