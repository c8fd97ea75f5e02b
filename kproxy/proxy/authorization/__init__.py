"""Who may do what: rules, their decisions, and what becomes of requests that ask for more (Kafka's ``Authorizer``)."""
