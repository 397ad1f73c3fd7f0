"""What is measured: KILT's measures, intervals, suites over public data, result files."""
