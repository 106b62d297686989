"""HTTP service, command line and web page over the models and the index. Imports `indexer` and `models`."""
