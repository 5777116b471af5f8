"""The Python API for notebooks and scripts: `import nightsight as ns` (docs/api.md)."""
