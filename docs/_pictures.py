"""Pictures of a report's figures, by Chromium: make demo && .venv/bin/python docs/_pictures.py"""

import subprocess
import tempfile
from pathlib import Path

REPORT = Path("runs/demo/report.html")
IMAGES = Path(__file__).parent / "images"
SHOWN = {  # figures, what their pictures are called, and how high these are
    "accuracy-over-time": ("demo-accuracy.png", 560),
    "rows-before-and-after-shufflefl": ("demo-rows.png", 800),
}
ALONE = """<style>:root {{ color-scheme: light only; }} body {{ margin: 0 auto; }} h2 {{ margin-top: 1rem; }}
body > section:not(#{section}), body > :is(h1, p, nav, .wide), .data, .modebar {{ display: none !important; }}
</style></head>"""


def main() -> None:
    page = REPORT.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as room:
        for section, (name, height) in SHOWN.items():
            alone = Path(room, "alone.html")
            head, end, rest = page.rpartition("</head>\n<body>")
            assert end, "a report has one head"
            alone.write_text(f"{head}{ALONE.format(section=section)}\n<body>{rest}", encoding="utf-8")
            command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            command += [
                f"--window-size=900,{height}",
                "--virtual-time-budget=5000",
                f"--user-data-dir={room}",
            ]
            command += [f"--screenshot={(IMAGES / name).resolve()}", alone.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
