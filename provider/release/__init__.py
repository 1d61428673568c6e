"""The only way a number leaves a provider: gate, reserve, draw noise, evaluate, add, store, hand over."""

from .attempts import EvaluationAttempts
from .entropy import system_entropy
from .responder import Evaluator, PaidAnswer, PaidQuery, Responder
from .schedule import LEAST_INTERVAL, Coin, Schedule, delay_result, system_coin

__all__ = [
    "LEAST_INTERVAL",
    "Coin",
    "EvaluationAttempts",
    "Evaluator",
    "PaidAnswer",
    "PaidQuery",
    "Responder",
    "Schedule",
    "delay_result",
    "system_coin",
    "system_entropy",
]
