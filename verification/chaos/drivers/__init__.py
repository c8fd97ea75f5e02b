"""Released clients, each driven by a script of its own process: a job comes in, operations go out."""
