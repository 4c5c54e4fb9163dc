"""Sampled MuZero's samples and prior written down naively: Python integers, lists and counts, one node at a time."""

import math
from collections import Counter

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(state):
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def uniforms(key, node):
    """SplitMix64, one number after the other, from a state mixed of key and node."""
    state = mix((mix(key) + (node + 1) * GOLDEN) & MASK)
    while True:
        state = (state + GOLDEN) & MASK
        yield (mix(state) >> 11) / 2**53


def probabilities(logits, legal, temperature):
    """`pi^(1 / temperature)` over legal categories, normalised."""
    highest = max((logit for logit, fine in zip(logits, legal, strict=True) if fine))
    weights = []
    for logit, fine in zip(logits, legal, strict=True):
        if not fine or logit == -math.inf:
            weights.append(0.0)
        else:
            weights.append(math.exp((logit - highest) / temperature))
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def pick(weights, number):
    """The category in whose share of the sum the number falls."""
    threshold = number * sum(weights)
    passed = 0.0
    for category, weight in enumerate(weights):
        passed += weight
        if passed > threshold:
            return category
    raise AssertionError("the number is below 1")


def sample_categories(factors, legal, key, node, num_samples, temperature, num_flat):
    """Distinct joint actions in ascending order, with their prior `beta_hat / beta * pi`, not normalised."""
    policy = [probabilities(*factor, 1.0) for factor in zip(factors, legal, strict=True)]
    flat = [probabilities(*factor, temperature) for factor in zip(factors, legal, strict=True)]
    numbers = uniforms(key, node)
    drawn = Counter()
    for sample in range(num_samples):
        source = flat if sample >= num_samples - num_flat else policy
        drawn[tuple(pick(weights, next(numbers)) for weights in source)] += 1
    share = num_flat / num_samples
    prior = {}
    for action in sorted(drawn):
        pi = math.prod(weights[part] for weights, part in zip(policy, action, strict=True))
        phi = math.prod(weights[part] for weights, part in zip(flat, action, strict=True))
        beta = (1 - share) * pi + share * phi
        prior[action] = drawn[action] / num_samples * (pi / beta)
    return prior


def normal_density(value, mean, std):
    return math.exp(-0.5 * ((value - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


def sample_box(mean, std, low, high, key, node, num_samples, num_wide, std_factor):
    """Actions in the order of their draws, each with `1 / K / beta * pi`; beta and pi are densities of `u`."""
    numbers = uniforms(key, node)
    share = num_wide / num_samples
    samples = []
    for sample in range(num_samples):
        factor = std_factor if sample >= num_samples - num_wide else 1.0
        action, pi, phi = [], 1.0, 1.0
        for centre, deviation, lowest, highest in zip(mean, std, low, high, strict=True):
            first, second = next(numbers), next(numbers)
            normal = math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)
            u = centre + factor * deviation * normal
            pi *= normal_density(u, centre, deviation)
            phi *= normal_density(u, centre, std_factor * deviation)
            squashed = min(max(math.tanh(u), -1 + 1e-6), 1 - 1e-6)
            action.append(lowest + (highest - lowest) * (1 + squashed) / 2)
        samples.append((action, pi / ((1 - share) * pi + share * phi) / num_samples))
    return samples
