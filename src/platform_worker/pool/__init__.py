"""The pool's decisions: a state machine that does no I/O and reads no clock. See ``machine``."""
