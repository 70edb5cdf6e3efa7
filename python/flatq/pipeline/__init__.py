"""Jobs over queues, on Spark: queues and their event logs to tables, tables to queues, figures, and
the crash laboratory.

`python -m flatq.pipeline -h` lists them. Each is also a function that takes a session
(flatq.spark.session, or one of your own):

    from flatq import spark as flatq_spark
    from flatq.pipeline import drain, events, load, stats

    spark = flatq_spark.session()
    drain.once(spark, ["jobs"], "/srv/tables/jobs")                 # exactly once, however often it is killed and started again
    load.load(spark, "/srv/tables/more.csv", "jobs")
    print(stats.text(stats.collect(events.table(spark))))
"""
