"""From ``worker.toml`` to the content of an artifact generation. Imported by the build only: pydantic lives here."""
