"""An audit of rewards: what an environment pays for without its task being done, each shown by an episode."""

from agent_envs.audit.findings import KINDS, Attempt, Certificate, Finding
from agent_envs.audit.run import audit

__all__ = ["KINDS", "Attempt", "Certificate", "Finding", "audit"]


def __dir__() -> list[str]:
    return __all__
