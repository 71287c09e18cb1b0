"""The files of a version: their actions replayed, tags, statistics and deletion vectors."""
