"""How FedPVR's views read in a report."""

from potluck.core.notes import Notes

NOTES = Notes(
    views={
        "personal": "the shared model with last layers of the device's own",
        "global": "the shared model with shared last layers",
    }
)
