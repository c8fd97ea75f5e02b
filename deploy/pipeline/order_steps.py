"""Steps of the pipeline orders.yaml that are easier in Python."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql


def clean(parsed: DataFrame) -> DataFrame:
    """Order events as id, shop, amount and at; what has no id is left out, for it is rejected elsewhere."""
    event = sql.col("event")
    amount = sql.regexp_replace(event["amount"], ",", ".").try_cast("decimal(12,2)")
    return parsed.where(event["id"].isNotNull()).select(
        event["id"].alias("id"),
        sql.lower(sql.trim(event["shop"])).alias("shop"),
        amount.alias("amount"),
        event["at"].alias("at"),
    )
