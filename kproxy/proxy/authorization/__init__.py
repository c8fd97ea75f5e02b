"""Authorization (Kafka's ``Authorizer``): ACL rules, and guards that refuse what a principal may not do."""
