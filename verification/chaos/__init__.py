"""Real faults on a real cluster: old clients produce through kproxy while networks, brokers and kproxy itself fail."""
