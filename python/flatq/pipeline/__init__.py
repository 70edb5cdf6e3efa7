"""Jobs over queues, on Spark: `python -m flatq.pipeline -h` lists them.

Each is also a function that takes a session:

    from flatq import spark as flatq_spark
    from flatq.pipeline import drain, events, load, stats

    flatq_spark.register(spark)
    drain.once(spark, ["jobs"], "/srv/tables/jobs")
    load.load(spark, "/srv/tables/more.csv", "jobs")
    print(stats.text(stats.collect(events.table(spark))))
"""
