"""How IFCA's notes read in a report."""

from potluck.core.notes import Notes

NOTES = Notes({"chose": "devices that chose its model"})
