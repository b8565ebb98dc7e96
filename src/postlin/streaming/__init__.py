"""Labelled rows that are read in passes: chunks, sources, engines, the survey, views and neighbours.

A source (arrays, a stream, Parquet files, Dask collections) gives its rows a chunk at a time. An engine
adds up what each chunk contributes, in threads or on a Dask cluster. The survey is the first pass, and
a view selects two classes of many. The search for neighbours finds the nearest rows, in one memory or
part by part. Nothing here knows of Gaussian processes.
"""
