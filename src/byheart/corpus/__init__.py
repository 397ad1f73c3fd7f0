"""Documents to passages, and the data sets byheart is trained and measured on."""
