"""How SHARE's views read in a report."""

from potluck.core.notes import Notes

NOTES = Notes(
    views={
        "edge": "the model of the device's edge",
        "global": "the cloud's for all",
    }
)
