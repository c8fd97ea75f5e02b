"""The demonstration: a client of 2015 is refused by a Kafka of today, then works through kproxy.

`command` is the `kproxy demo` command, `story` tells the steps on the screen, `broker` finds a Kafka (a real one, else
the embedded fake), `sidecar` runs kproxy as a child process, `clients` are the old clients, and `audit` reads the log
straight from the broker and compares it with what was sent.
"""
