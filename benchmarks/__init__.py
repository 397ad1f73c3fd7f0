"""Speed figures and the tables of the documentation. Not part of the package."""
