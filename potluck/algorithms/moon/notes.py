"""How MOON's views read in a report."""

from potluck.core.notes import Notes

NOTES = Notes(
    views={
        "global": "the shared model",
        "personal": "the model that the device trained last",
    }
)
