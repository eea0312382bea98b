"""Questions asked of data sets, and how they are answered: settings, cross validation, provenance."""
