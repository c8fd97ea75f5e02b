"""``kproxy doctor``: checks brokers, topics and options, and says what does not fit and what to do.

``gather`` asks all that there is to ask, once; the checks are functions of what it found.
"""
