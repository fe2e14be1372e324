"""Train a small neural network to tell two interleaved half moons apart.

Uses only the standard library and a fixed seed, so every run is the same. EPOCHS sets the number
of passes. Exits with 1 if the held-out accuracy is below 0.9, and with 2 if EPOCHS is not a number
above 0.
"""

import math
import os
import random
import sys

SEED = 7
SAMPLES = 20_000
HIDDEN = 12
LEARNING_RATE = 0.003


def half_moons(rng, count):
    """Points (x, y, label), where the label tells on which moon the point lies."""
    points = []
    for i in range(count):
        angle, label = math.pi * rng.random(), i % 2
        x, y = math.cos(angle), math.sin(angle)
        if label:
            x, y = 1.0 - x, 0.5 - y
        points.append((x + rng.gauss(0, 0.15), y + rng.gauss(0, 0.15), label))
    return points


class Network:
    """Two inputs, one hidden layer of tanh units, one sigmoid output."""

    def __init__(self, rng):
        self.hidden = [[rng.gauss(0, 1), rng.gauss(0, 1), 0.0] for _ in range(HIDDEN)]
        self.output = [rng.gauss(0, 0.5) for _ in range(HIDDEN)]
        self.bias = 0.0

    def forward(self, x, y):
        activations = [math.tanh(wx * x + wy * y + b) for wx, wy, b in self.hidden]
        total = self.bias + sum(w * a for w, a in zip(self.output, activations, strict=True))
        return activations, 1.0 / (1.0 + math.exp(-total))

    def learn(self, x, y, label):
        """Takes one step of gradient descent on one point, and returns the loss before the step."""
        activations, guess = self.forward(x, y)
        error = guess - label
        for i, a in enumerate(activations):
            slope = LEARNING_RATE * error * self.output[i] * (1.0 - a * a)
            self.output[i] -= LEARNING_RATE * error * a
            weights = self.hidden[i]
            weights[0] -= slope * x
            weights[1] -= slope * y
            weights[2] -= slope
        self.bias -= LEARNING_RATE * error
        return -math.log(max(guess if label else 1.0 - guess, 1e-12))

    def accuracy(self, points):
        right = sum((self.forward(x, y)[1] > 0.5) == bool(label) for x, y, label in points)
        return right / len(points)


def main():
    text = os.environ.get("EPOCHS", "24")
    if not text.isdecimal() or int(text) < 1:
        print(f"EPOCHS must be a whole number of at least 1, not {text!r}", file=sys.stderr)
        return 2
    epochs = int(text)

    rng = random.Random(SEED)
    points = half_moons(rng, SAMPLES)
    training, held_out = points[SAMPLES // 5 :], points[: SAMPLES // 5]
    network = Network(rng)
    for epoch in range(1, epochs + 1):
        rng.shuffle(training)
        loss = sum(network.learn(*point) for point in training) / len(training)
        print(f"epoch {epoch:3d}/{epochs}  loss {loss:.4f}", flush=True)

    accuracy = network.accuracy(held_out)
    print(f"accuracy {accuracy:.3f} on {len(held_out)} points not trained on", flush=True)
    return 0 if accuracy >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
