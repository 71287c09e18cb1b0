"""Small tools that every package uses: text, logs, progress, the clock."""
