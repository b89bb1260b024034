"""What a device's owner allows: how long a job may take, how often one may begin, and when."""

import subprocess
import time
from collections.abc import Callable

AGAIN = 10.0  # seconds until a device that isn't ready is asked again
ANSWER = 30.0  # seconds that the owner's command may take


class Manners:
    """When work may begin, and when it must end."""

    def __init__(self, longest: float = 3600.0, jobs_a_minute: float = 0.0, ready: str = "") -> None:
        self.longest, self.ready = longest, ready
        self.pause = 60.0 / jobs_a_minute if jobs_a_minute else 0.0
        self.last = 0.0  # when a job last began

    def wait(self, sleep: Callable[[float], bool]) -> None:
        """Until work may begin; `sleep` says whether it was woken up to end."""
        rest = self.last + self.pause - time.monotonic()
        if rest > 0 and sleep(rest):
            return
        while not self.is_good_time():
            if sleep(AGAIN):
                return
        self.last = time.monotonic()

    def is_good_time(self) -> bool:
        """As the owner's own command says; only her own file can name one."""
        if not self.ready:
            return True
        try:
            return subprocess.run(self.ready, shell=True, timeout=ANSWER, capture_output=True).returncode == 0
        except subprocess.TimeoutExpired:
            return False
