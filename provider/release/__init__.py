"""The only way a number leaves: gate, reserve, draw noise, evaluate, add, store, hand over."""

from .entropy import system_entropy
from .responder import Evaluator, Made, Responder
from .schedule import LEAST_INTERVAL, Coin, Schedule, coin, held

__all__ = [
    "LEAST_INTERVAL",
    "Coin",
    "Evaluator",
    "Made",
    "Responder",
    "Schedule",
    "coin",
    "held",
    "system_entropy",
]
