"""A control loop that Takt measures and judges: `takt run program.toml`."""

import sys

try:
    import takt
except ModuleNotFoundError:
    import without_takt as takt


class Joint:
    """A joint and its controller. Put yours here: read the sensors, compute, command."""

    def __init__(self) -> None:
        self.position = 0.0
        self.velocity = 0.0

    def step(self, target: float, seconds: float) -> float:
        error = target - self.position
        torque = 40.0 * error - 8.0 * self.velocity
        self.velocity += torque * seconds
        self.position += self.velocity * seconds
        return error


def main() -> None:
    rate_hz = float(sys.argv[1]) if len(sys.argv) > 1 else 500.0
    joint = Joint()
    takt.thread(name="control")
    # Without `deadline` it is the period.
    with takt.loop("control", hz=rate_hz) as loop:
        print("ready", flush=True)
        for _release in loop:  # sleeps until the next release of the grid
            loop.value(joint.step(1.0, 1.0 / rate_hz))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass  # However the loop ends, command a stop here.
