"""How DM-PFL's views read in a report."""

from potluck.core.notes import Notes

NOTES = Notes(
    views={
        "dmpfl": "the device's own sparse model, or the global one for rows that are unlike the device's",
        "global": "the global model alone",
    }
)
