"""What the user sees and keeps: result.json, tables, progress, and how a command ends."""
