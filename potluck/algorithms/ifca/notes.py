"""How IFCA's notes read in a report."""

from potluck.core.notes import Notes

NOTES = Notes(
    {
        "chose": "devices that chose its model",
        "draw number": "draw of first models",
        "draw least": "share of devices that chose the least chosen first model",
        "uneven number": "the most even draw of first models; none was even enough",
        "uneven least": "its share of devices that chose the least chosen model",
        "uneven wanted": "the share that each first model should have had",
    },
    group="model",
)
