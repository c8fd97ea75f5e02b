"""The demonstration: a client of 2015 is refused by a Kafka of today, then works through kproxy.

`demo_command` is the `kproxy demo` command and `story` tells the steps on the screen. `demo_broker` finds a Kafka (a
real one, else the embedded fake), `sidecar` runs kproxy as a child process, and `demo_clients` are the old clients.
`audit` reads the log straight from the broker and compares it with what was sent.
"""
