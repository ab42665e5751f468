"""Tasks: the seam to task sources, the handlers, and the unit of work around each task."""
