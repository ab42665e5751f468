"""Real pools for tests: an application's root, a pool on it, who lives, what is left."""

from harness.application import Application
from harness.ledger import Ledger
from harness.pool import Pool
from harness.processes import alive, census, eventually
from harness.scale import scaled

__all__ = ["Application", "Ledger", "Pool", "alive", "census", "eventually", "scaled"]
