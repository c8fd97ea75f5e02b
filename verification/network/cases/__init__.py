"""The cases, each of which is a promise that a real network once broke."""
