"""What coding agents use: the tools of an MCP server, and the skill file (docs/agents.md)."""
