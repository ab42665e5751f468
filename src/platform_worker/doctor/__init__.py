"""What ``worker doctor`` knows of problems: findings with remedies. Pure; see ``wiring_doctor``."""
