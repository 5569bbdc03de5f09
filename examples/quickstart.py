from pyspark.sql import SparkSession

import pyspark_ivm

spark = pyspark_ivm.configure(SparkSession.builder).getOrCreate()
spark.sql("CREATE TABLE orders (id BIGINT, customer INT, price DECIMAL(10,2)) USING parquet")
spark.sql("INSERT INTO orders VALUES (1, 7, 20.00), (2, 7, 5.50), (3, 8, 12.00)")
spark.sql("CREATE INCREMENTAL VIEW spent AS SELECT customer, SUM(price) AS total FROM orders GROUP BY customer")
spark.sql("INSERT INTO orders VALUES (4, 8, 30.00)")
spark.table("spent").orderBy("customer").show()  # brought up to date by the read: 7 -> 25.50, 8 -> 42.00
spark.sql("REFRESH INCREMENTAL VIEW spent").show()  # or by hand: version, kind, reason, rows, milliseconds
