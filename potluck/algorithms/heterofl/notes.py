"""How HeteroFL's views read in a report."""

from potluck.core.notes import Notes

NOTES = Notes(
    views={
        "level": "the part of the model that the device can carry",
        "global": "the whole model, which narrow devices could not carry",
    }
)
