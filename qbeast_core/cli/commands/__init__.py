"""The commands; they load the library when they run."""
