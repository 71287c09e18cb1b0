"""The shell: clock, ids, retries and storage around the pure parts."""
