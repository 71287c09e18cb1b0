"""The Delta log as values, pure: actions, statistics, protocol and conflict rules."""
